"""Milliseconds a text and megabytes of T tasks, each model alone and all in a bundle, on this CPU.

    python bench/bundle.py

T MiniLM classifiers (`--model` names another one) share the first 3, 4 or 5 of their 6 layers; what
is trained differs by nothing but its seed, as speed does not depend on it. Texts are pairs of the
embedded task, one by one and 32 at once, tokenised within the measured time. `transformers` is
T models on padded batches, one after the other; `alone` the same T models on packed tokens, each
with its own memory; `bundled` one bundle. All take turns within a pass, so that a slow spell of the
machine hits all alike; medians of the passes. Writes bench/results/bundle.json and
docs/figures/bundle.png; `--draw` only draws what the JSON has. Another model's results are
bundle_MODEL.json alone, without a figure. Afterwards
`python -m tools.documents bundle` writes the table of docs/measured.md.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import machine
import torch

from elsa_tune.report.charts import LINES, MARKERS, SERIES, Chart, Panel, Series, style
from elsa_tune.report.figures import draw
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.model import resolve_model
from elsa_tune.training.adapt import methods
from elsa_tune.training.bundle.members import Member, alone, deepest
from elsa_tune.training.bundle.together import Bundle
from elsa_tune.training.data.embedded import read_embedded
from elsa_tune.training.model.encoder import load_classifier, load_tokenizer, own_what_trains

TASKS = (1, 2, 4, 8)
BATCHES = (1, 32)
MAX_LENGTH = 128
FIGURES = machine.RESULTS.parents[1] / "docs" / "figures"

Call = Callable[[Sequence[Any]], object]


def main() -> None:
    """Measure, write and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="minilm")
    parser.add_argument("--frozen-layers", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--tasks", type=int, nargs="+", default=TASKS)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--passes", type=int, default=9)
    parser.add_argument("--draw", action="store_true", help="draw the recorded results again")
    options = parser.parse_args()
    if not options.draw:
        torch.set_num_threads(options.threads)
        results = measured(options)
        note = (
            f"{options.model}, threads: {options.threads}, {options.texts} pairs of "
            f"{results['tokens']:.0f} tokens on average; milliseconds a text, medians of "
            f"{options.passes} passes; megabytes (10^6 bytes) of weights"
        )
        if options.model != "minilm":
            print(machine.write(f"bundle_{options.model}", results, note))
            return
        print(machine.write("bundle", results, note))
    recorded = json.loads((machine.RESULTS / "bundle.json").read_text())["results"]
    (FIGURES / "bundle.png").write_bytes(draw(chart(recorded))["png"])


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Return a row for each number of tasks, size of batch and depth."""
    split = read_embedded()["evaluation"]
    texts = list(zip(*split.texts, strict=True))[: options.texts]
    tokenizer: Any = load_tokenizer(resolve_model(options.model))
    ids = tokenizer(*map(list, zip(*texts, strict=True)))["input_ids"]
    rows = []
    for count in options.tasks:
        # What is frozen does not matter for a model alone.
        by_depth = {n: members_of(options.model, n, count) for n in options.frozen_layers}
        some = by_depth[options.frozen_layers[0]]
        sizes = {n: megabytes(members) for n, members in by_depth.items()}
        calls = {"transformers": one_by_one([lambda x, m=m: alone(m, x) for m in own(some)])}
        singles = [Bundle({"one": member}, packed=True) for member in own(some)]
        calls["alone"] = one_by_one([single.predict for single in singles])
        bundles = {n: Bundle(members, packed=True) for n, members in by_depth.items()}
        calls |= {f"bundled {n}": bundle.predict for n, bundle in bundles.items()}
        for batch in BATCHES:
            spent = in_turns(calls, texts, batch, options.passes)
            for n, (apart, together) in sizes.items():
                row = {
                    "tasks": count,
                    "batch": batch,
                    "frozen_layers": n,
                    "transformers": spent["transformers"],
                    "alone": spent["alone"],
                    "bundled": spent[f"bundled {n}"],
                    "megabytes_alone": apart,
                    "megabytes_bundled": together,
                }
                rows.append(row)
                print(json.dumps(row), flush=True)
    return {"model": options.model, "tokens": sum(map(len, ids)) / len(ids), "rows": rows}


def members_of(name: str, frozen: int, count: int) -> dict[str, Member]:
    """So many classifiers of one base that differ behind their frozen layers."""
    spec = resolve_model(name)
    tokenizer = load_tokenizer(spec)
    facts = {"frozen_layers": frozen, "embeddings_frozen": True, "max_length": MAX_LENGTH}
    members = {}
    for seed in range(count):
        model = load_classifier(spec, 2, seed, shared=True)
        methods.apply(model, FreezeDepth.of(frozen))
        own_what_trains(model)
        model.config.elsa_tune = facts
        members[f"task{seed}"] = Member(model, tokenizer)
    return members


def own(members: dict[str, Member]) -> list[Member]:
    """Return the same models, none of which shares memory with another."""
    return [Member(copy.deepcopy(one.model), one.tokenizer) for one in members.values()]


def megabytes(members: dict[str, Member]) -> tuple[float, float]:
    """Of all weights apart, and of a bundle's."""
    states = [one.model.state_dict() for one in members.values()]
    apart = sum(x.nbytes for state in states for x in state.values())
    frozen = {name: x.nbytes for name, x in deepest(members).frozen().items()}
    bundled = apart - (len(members) - 1) * sum(frozen.values())
    return round(apart / 1e6, 1), round(bundled / 1e6, 1)


def one_by_one(calls: Sequence[Call]) -> Call:
    """All of them on the same texts."""
    return lambda texts: [call(texts) for call in calls]


def in_turns(
    calls: dict[str, Call], texts: Sequence[Any], batch: int, passes: int
) -> dict[str, float]:
    """Median milliseconds a text, batch by batch in turns; the first pass warms up."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    with torch.inference_mode():
        for number in range(passes + 1):
            sums = dict.fromkeys(calls, 0.0)
            for start in range(0, len(texts), batch):
                for name, call in calls.items():
                    started = time.perf_counter()
                    call(texts[start : start + batch])
                    sums[name] += time.perf_counter() - started
            for name, seconds in sums.items():
                if number:
                    spent[name].append(1000 * seconds / len(texts))
    return {name: round(statistics.median(times), 3) for name, times in spent.items()}


def chart(results: dict[str, Any]) -> Chart:
    """Return a panel for each size of batch, a line for each way to run."""
    panels = []
    for batch in BATCHES:
        rows = [row for row in results["rows"] if row["batch"] == batch]
        depths = sorted({row["frozen_layers"] for row in rows})
        first = [row for row in rows if row["frozen_layers"] == depths[0]]
        lines = {"alone, transformers": (first, "transformers"), "alone, packed": (first, "alone")}
        for n in depths:
            of_depth = [row for row in rows if row["frozen_layers"] == n]
            lines[f"bundled, {n} layers shared"] = (of_depth, "bundled")
        series = [
            Series(
                name=name,
                style=style(SERIES[at], marker=MARKERS[at], line=LINES[at // 2 % len(LINES)]),
                x=tuple(float(row["tasks"]) for row in of),
                y=tuple(row[key] for row in of),
            )
            for at, (name, (of, key)) in enumerate(lines.items())
        ]
        counts = sorted({row["tasks"] for row in rows})
        panels.append(
            Panel(
                title="one text at a time" if batch == 1 else f"{batch} texts at once",
                x_title="tasks",
                y_title="milliseconds a text",
                series=tuple(series),
                ticks=tuple((float(count), str(count)) for count in counts),
            )
        )
    return Chart(key="bundle", title="Several tasks", caption="", panels=tuple(panels))


if __name__ == "__main__":
    main()
