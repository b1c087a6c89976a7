"""How many small changes to the code that decides answers the unit tests notice.

    python tools/mutants.py [--count N | --all] [FILE...]        (`make mutants` without options)

A mutant is the code with one comparison, sign, constant or condition changed, as cosmic-ray does
it, in a copy of the tree (build/mutants). Only the tests in TESTED that concern the file run. The
mutants are drawn by a hash of their text: the same code gives the same ones, and a change of one
line leaves the others drawn.

Writes tools/mutants.json, unless files are named: then every mutant of these files runs, or N, and
nothing is written. Each survivor there carries a `why`, which later runs keep: write it, or the
test that kills it. Exit status 1 if fewer than LEAST are killed, or a survivor has no `why`.
"""

from __future__ import annotations

import argparse
import ast
import collections
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import optuna  # noqa: F401  # these are loaded once for all
import pytest
import ray.tune.schedulers  # noqa: F401
import scipy.stats  # noqa: F401
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.number_replacer import NumberReplacer
from cosmic_ray.operators.operator import Operator
from cosmic_ray.plugins import get_operator
from parso.python.tree import Number

ROOT = Path(__file__).resolve().parents[1]
COPY = ROOT / "build" / "mutants"
RESULTS = ROOT / "tools" / "mutants.json"
COUNT = 300
LEAST = 0.89
TICK_S = 0.02

_ANSWERS = "operating_point first_lines curve certainty rates probe_answer"
_COMPARISONS = "comparison comparison_output cost_chart"
_PLANNING = "plan extension proposals"

# The code under test and the unit tests that concern it, those that know it best first. A folder
# stands for what no longer name above it has taken.
TESTED = {
    "elsa_tune/analysis/statistics/hidden_mistakes.py": "resampling uncertainty",
    "elsa_tune/analysis/statistics/resampling.py": "resampling uncertainty",
    "elsa_tune/analysis/statistics/intervals.py": "uncertainty certainty curve comparison",
    "elsa_tune/analysis/statistics/learning.py": "uncertainty certainty curve comparison",
    "elsa_tune/analysis/statistics/seeds.py": "uncertainty certainty curve comparison",
    "elsa_tune/analysis/statistics/uncertainty.py": "uncertainty certainty curve comparison",
    "elsa_tune/analysis/answer.py": f"first_lines api {_ANSWERS}",
    "elsa_tune/analysis/answer_json.py": f"answer_cli persisted_names api {_ANSWERS}",
    "elsa_tune/analysis/certainty.py": f"certainty looks what_would_certify hunt {_ANSWERS}",
    "elsa_tune/analysis/evidence.py": f"looks hunt uncertainty {_ANSWERS}",
    "elsa_tune/analysis/learnt.py": f"certainty curve {_ANSWERS}",
    "elsa_tune/analysis/contrasts.py": f"certainty looks hunt {_ANSWERS}",
    "elsa_tune/analysis/curve.py": f"curve {_ANSWERS}",
    "elsa_tune/analysis/curve_of_rows.py": f"curve {_ANSWERS}",
    "elsa_tune/analysis/groups.py": f"curve {_ANSWERS}",
    "elsa_tune/analysis/failures.py": "failures curve uncertainty",
    "elsa_tune/analysis/forecast.py": "what_would_certify certainty",
    "elsa_tune/analysis/joint.py": f"operating_point looks {_ANSWERS}",
    "elsa_tune/analysis/power.py": "what_would_certify searches_cli",
    "elsa_tune/analysis/recommendation.py": f"first_lines {_ANSWERS}",
    "elsa_tune/analysis/measured.py": f"curve rates {_ANSWERS}",
    "elsa_tune/analysis/comparing/comparison.py": _COMPARISONS,
    "elsa_tune/analysis/comparing/comparison_json.py": f"{_COMPARISONS} persisted_names",
    "elsa_tune/analysis/comparing/rate_ratio.py": _COMPARISONS,
    "elsa_tune/analysis/comparing/differences.py": "differences",
    "elsa_tune/analysis/statistics/differences.py": "differences",
    "elsa_tune/analysis/wording/differences.py": "differences",
    "elsa_tune/analysis/comparing/ways.py": _COMPARISONS,
    "elsa_tune/analysis/comparing/ways_forecast.py": "ways_forecast",
    "elsa_tune/analysis/comparing/ways_power.py": "ways_power",
    "elsa_tune/analysis/wording/comparison.py": _COMPARISONS,
    "elsa_tune/analysis/wording/fairness.py": _COMPARISONS,
    "elsa_tune/analysis/wording/ways.py": _COMPARISONS,
    "elsa_tune/analysis/wording/comparison_tables.py": _COMPARISONS,
    "elsa_tune/analysis/wording/ways_power.py": "ways_power",
    "elsa_tune/analysis/wording/would_certify.py": "ways_forecast",
    "elsa_tune/analysis/wording/certainty.py": f"certainty looks what_would_certify {_ANSWERS}",
    "elsa_tune/analysis/wording/first_lines.py": f"first_lines {_ANSWERS}",
    "elsa_tune/analysis/wording": f"{_ANSWERS} answer_cli",
    "elsa_tune/analysis": _ANSWERS,
    "elsa_tune/searching/planning/edge.py": "edge",
    "elsa_tune/searching/planning/even.py": "plan extension policy",
    "elsa_tune/searching/planning/hunt.py": "hunt looks plan policy",
    "elsa_tune/searching/planning/known.py": "plan state recorded_trial selection extension hunt",
    "elsa_tune/searching/planning/neighbours.py": "neighbours",
    "elsa_tune/searching/planning/one_study.py": f"neighbours own_rates {_PLANNING}",
    "elsa_tune/searching/planning/outlook.py": "plan hunt ways_power",
    "elsa_tune/searching/planning/outward.py": f"extension {_PLANNING}",
    "elsa_tune/searching/planning/plan.py": f"plan {_PLANNING} hunt searches_cli",
    "elsa_tune/searching/planning/rates.py": f"extension {_PLANNING} hunt",
    "elsa_tune/searching/planning/proposals.py": f"proposals {_PLANNING}",
    "elsa_tune/searching/planning/samplers.py": f"proposals {_PLANNING}",
    "elsa_tune/searching/planning/strategies.py": "plan persisted_names",
    "elsa_tune/searching/planning/strategy.py": f"{_PLANNING} looks hunt policy",
    "elsa_tune/searching/planning/strategy_settings.py": "strategy_settings",
    "elsa_tune/searching/planning/walk.py": "hunt looks plan policy",
    "elsa_tune/searching/tune/asha.py": "early_stopping",
    "elsa_tune/specs/policy.py": "policy hunt",
    "elsa_tune/tasks/types": "metrics own_metric task_types selection resampling",
    "elsa_tune/tracking/state.py": "state",
    "elsa_tune/tracking/journal.py": "journal damaged_journals",
    "elsa_tune/tracking/waiting.py": "waiting",
}

# Each comparison at its edge and turned round, each sign, `and` for `or`, each constant. Not
# replaced: `|`, which stands in annotations, and what can only crash.
_PAIRS = {
    "Comparison": "Eq_NotEq NotEq_Eq Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt "
    "Is_IsNot IsNot_Is",
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_FloorDiv Pow_Mul BitAnd_BitOr",
    "Unary": "USub_UAdd Delete_Not",
}
OPERATORS = [
    f"core/Replace{kind}Operator_{pair}" for kind, pairs in _PAIRS.items() for pair in pairs.split()
]
OPERATORS += ["core/ReplaceTrueWithFalse", "core/ReplaceFalseWithTrue"]
OPERATORS += ["core/ReplaceAndWithOr", "core/ReplaceOrWithAnd"]
OPERATORS += ["core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak"]
OPERATORS += ["constant"]


class Constant(NumberReplacer):  # type: ignore[misc]  # cosmic-ray ships no types
    """A number changed: an integer, or 0.0, by one up and down; any other to twice and half."""

    def mutate(self, node: Number, index: int) -> Number:
        """Return the number that takes the place of one in the code."""
        value = ast.literal_eval(node.value)
        if isinstance(value, int) or not value:
            changed: Number = super().mutate(node, index)
            return changed
        return Number(f" {value * (2, 0.5)[index]}", node.start_pos)


def operator_of(name: str) -> Operator:
    """Return one of OPERATORS by its name."""
    return Constant() if name == "constant" else get_operator(name)()


@dataclass(frozen=True, slots=True, order=True)
class Mutant:
    """A change of one line: the `occurrence`-th place for an operator in a file of the tree."""

    rank: str  # its place in the drawing, the same wherever the line stands
    path: str  # the file, from the top of the tree
    number: int  # the line's, from 1
    operator: str  # one of OPERATORS
    occurrence: int  # which of the operator's places in the file, from 0

    def code(self) -> str:
        """Return the text of the changed file."""
        code = (ROOT / self.path).read_text(encoding="utf-8")
        changed: str | None = mutate_code(code, operator_of(self.operator), self.occurrence)
        assert changed is not None
        return changed

    def change(self) -> tuple[str, str, str]:
        """Return its file, its line and what became of that."""
        before = (ROOT / self.path).read_text(encoding="utf-8").splitlines()[self.number - 1]
        after = self.code().splitlines()[self.number - 1]
        return self.path, before.strip(), " ".join(after.split())


def mutants_of(file: Path) -> Iterator[Mutant]:
    """Yield every mutant of a file, but of what decorates: a dataclass's options decide nothing."""
    code = file.read_text(encoding="utf-8")
    path = str(file.relative_to(ROOT))
    tree = get_ast(code)
    lines = code.splitlines()
    alike: collections.Counter[str] = collections.Counter()
    for name in OPERATORS:
        operator = operator_of(name)
        places = (place for node in ast_nodes(tree) for place in operator.mutation_positions(node))
        for occurrence, ((number, column), _) in enumerate(places):
            line = lines[number - 1]
            is_unpacking = line[column] == "*" and re.search(r"(^|[({,]) *$", line[:column])
            if is_unpacking or line.lstrip().startswith("@"):
                continue
            place = f"{path}\n{line.strip()}\n{name} {column - len(line) + len(line.lstrip())}"
            alike[place] += 1
            rank = hashlib.sha256(f"{place} {alike[place]}".encode()).hexdigest()
            yield Mutant(rank, path, number, name, occurrence)


def files(names: Sequence[str] = ()) -> list[Path]:
    """Return the code under test: all of it, or named files and what named folders hold."""
    known = _python_files(ROOT / name for name in TESTED)
    if not names:
        return known
    chosen = _python_files(Path(name).resolve() for name in names)
    if untested := set(chosen) - set(known):
        sys.exit(f"no tests are named in TESTED for {', '.join(map(str, sorted(untested)))}")
    return chosen


def _python_files(paths: Iterable[Path]) -> list[Path]:
    files: set[Path] = set()
    for path in paths:
        if not path.exists():
            sys.exit(f"there is no {path}")
        files.update([path] if path.is_file() else path.rglob("*.py"))
    return sorted(files)


def tests_of(path: str) -> tuple[str, ...]:
    """Return the unit tests concerned with a file."""
    name = max((name for name in TESTED if path.startswith(name)), key=len)
    return tuple(f"tests/unit/test_{test}.py" for test in dict.fromkeys(TESTED[name].split()))


def tests_pass(tests: Sequence[str], *, limit: float = 3600, log: str = os.devnull) -> bool:
    """Run tests in the copy, for `limit` seconds at most; what they print goes to the file `log`.

    They run in a fork of this process, which has loaded the libraries: that halves the time.
    """
    child = os.fork()
    if not child:
        os.setsid()
        output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path.insert(0, str(COPY))
        os._exit(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-o", "timeout=0", *tests]))
    # Ticks, not the clock: where all of this is stopped for a while, no test has taken long.
    for _ in range(round(limit / TICK_S)):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status == 0
        time.sleep(TICK_S)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return False


def copy_tree() -> None:
    """Make the copy that is changed, and go there."""
    shutil.rmtree(COPY, ignore_errors=True)
    ignored = shutil.ignore_patterns(".*", "build", "mlruns", "__pycache__")
    shutil.copytree(ROOT, COPY, ignore=ignored)
    os.chdir(COPY)
    os.environ["PYTHONPATH"] = str(COPY)  # before the checkout, which is installed


def limits_of(drawn: Iterable[Mutant]) -> dict[tuple[str, ...], float]:
    """Return how many seconds the tests of each file may take on a mutant.

    Without a change they must pass.
    """
    limits = {}
    for tests in {tests_of(mutant.path) for mutant in drawn}:
        began = time.monotonic()
        if not tests_pass(tests, log="failed.txt"):
            sys.exit(f"the tests fail without any change; see {COPY / 'failed.txt'}")
        limits[tests] = 60 + 20 * (time.monotonic() - began)
    return limits


def main() -> int:
    """Draw, run, write; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, help=f"how many ({COUNT}; of named files: all)")
    parser.add_argument("--all", action="store_true", help="every mutant there is")
    parser.add_argument("file", nargs="*", help="only these files or folders; writes no results")
    arguments = parser.parse_args()
    recorded = json.loads(RESULTS.read_text())["survivors"] if RESULTS.exists() else []
    why = {(entry["path"], entry["line"], entry["mutant"]): entry["why"] for entry in recorded}
    every = sorted(itertools.chain(*map(mutants_of, files(arguments.file))))
    count = arguments.count or COUNT
    if arguments.all or (arguments.file and not arguments.count):
        count = len(every)
    drawn = sorted(every[:count], key=lambda mutant: (mutant.path, mutant.number))
    print(f"{len(drawn)} of {len(every)} mutants", flush=True)
    copy_tree()
    began = time.monotonic()
    survivors = run(drawn, why)
    result = summary(drawn, survivors, why, of=len(every), seconds=time.monotonic() - began)
    if not arguments.file:
        text = json.dumps(result, indent=1, ensure_ascii=False)
        RESULTS.write_text(text + "\n", encoding="utf-8")
    unexplained = sum(not entry["why"] for entry in result["survivors"])
    print(f"killed {result['killed']} of {result['drawn']}; {unexplained} survivors not explained")
    return int(unexplained > 0 or result["killed"] < LEAST * result["drawn"])


def run(drawn: Sequence[Mutant], why: Mapping[tuple[str, str, str], str]) -> list[Mutant]:
    """Return the mutants that survive their tests, each printed with its reason as it is found."""
    limits = limits_of(drawn)
    sys.dont_write_bytecode = True  # two mutants of one second and one size would be taken for one
    survivors = []
    for number, mutant in enumerate(drawn, start=1):
        tests = tests_of(mutant.path)
        file = COPY / mutant.path
        before = file.read_text(encoding="utf-8")
        file.write_text(mutant.code(), encoding="utf-8")
        survived = tests_pass(tests, limit=limits[tests])
        file.write_text(before, encoding="utf-8")
        if survived:
            survivors.append(mutant)
            path, line, changed = mutant.change()
            reason = why.get(mutant.change()) or "NOT EXPLAINED"
            print(f"{number}: {path}:{mutant.number}\n  - {line}\n  + {changed}\n  {reason}")
            sys.stdout.flush()
    return survivors


def summary(
    drawn: Sequence[Mutant],
    survivors: Sequence[Mutant],
    why: Mapping[tuple[str, str, str], str],
    *,
    of: int,
    seconds: float,
) -> dict[str, Any]:
    """Return what is committed."""
    versions = {"python": ".".join(map(str, sys.version_info[:3]))}
    for name in ("cosmic-ray", "pytest", "numpy", "scipy", "optuna", "ray"):
        versions[name] = metadata.version(name)
    drawn_of = collections.Counter(mutant.path for mutant in drawn)
    survived_of = collections.Counter(mutant.path for mutant in survivors)
    reasons = []
    for mutant in survivors:
        path, line, changed = mutant.change()
        reason = why.get(mutant.change(), "")
        reasons.append({"path": path, "line": line, "mutant": changed, "why": reason})
    return {
        "date": time.strftime("%Y-%m-%d"),
        "versions": versions,
        "mutants": of,
        "drawn": len(drawn),
        "killed": len(drawn) - len(survivors),
        "minutes": round(seconds / 60, 1),
        "killed_by_file": {
            path: f"{count - survived_of[path]} of {count}" for path, count in drawn_of.items()
        },
        "survivors": reasons,
    }


if __name__ == "__main__":
    sys.exit(main())
