"""Tables as people have them: incomplete, mixed, contradicting, huge. One clear answer to each."""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import Run

HEADER = "model,task,layers,frozen_layers,quality,seed,metric,chance,learning_rate"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.csv"


def line(
    frozen: int,
    quality: float | str,
    seed: int = 1,
    *,
    model: str = "m",
    layers: int = 6,
    metric: str = "accuracy",
    chance: float | str = 0.5,
    rate: str = "3e-5",
) -> str:
    return f"{model},t,{layers},{frozen},{quality},{seed},{metric},{chance},{rate}"


def seeds(frozen: int, mean: float, first: int = 1, **changes: object) -> list[str]:
    """Three seeds a hundredth apart."""
    return [
        line(frozen, round(mean + step / 100, 4), first + step + 1, **changes)  # type: ignore[arg-type]
        for step in (-1, 0, 1)
    ]


def write(path: Path, lines: Iterable[str]) -> Path:
    path.write_text("\n".join((HEADER, *lines)) + "\n", encoding="utf-8")
    return path


def answers(run: Run, path: Path, *options: str) -> tuple[int, list[dict[str, object]]]:
    found = run("operating-point", "--from", path, "--format", "json", *options)
    parsed: list[dict[str, object]] = json.loads(found.out)
    return found.status, parsed


def test_missing_depths_are_named_beside_the_answer(run: Run, path: Path) -> None:
    status, (answer,) = answers(run, write(path, [*seeds(0, 0.9), *seeds(4, 0.88)]))
    assert status == 0 and answer["reason"] in ("examples_unknown", "too_few_seeds")
    told = "not measured: the last 3 and 1 layers and the head alone; only measured depths can be"
    assert told in str(answer)


@pytest.mark.parametrize(
    ("frozen", "reason"), [(0, "no_frozen_depth"), (4, "no_full_model"), (-1, "no_full_model")]
)
def test_one_depth_alone_answers_nothing(run: Run, path: Path, frozen: int, reason: str) -> None:
    status, (answer,) = answers(run, write(path, seeds(frozen, 0.9)))
    assert status == 3 and answer["reason"] == reason and answer["operating_point"] is None


def test_two_models_in_one_file_are_two_answers(run: Run, path: Path) -> None:
    small = [*seeds(0, 0.9), *seeds(3, 0.88)]
    large = [
        *seeds(0, 0.6, model="n", layers=24),
        *seeds(3, 0.59, model="n", layers=24),
        *seeds(20, 0.52, model="n", layers=24),
    ]
    mixed = [one for pair in zip(small, large, strict=False) for one in pair] + large[6:]
    status, both = answers(run, write(path, mixed))
    assert status == 0 and [answer["model"] for answer in both] == ["m", "n"]
    for model, lines in (("m", small), ("n", large)):
        (alone,) = answers(run, write(path, lines))[1]
        assert alone == next(answer for answer in both if answer["model"] == model)
        assert [alone] == answers(run, write(path, mixed), "--model", model)[1]


def test_two_models_under_one_name_are_refused(run: Run, path: Path) -> None:
    lines = [*seeds(0, 0.9), *seeds(0, 0.9, first=4, layers=24)]
    found = run("operating-point", "--from", write(path, lines))
    assert (found.status, found.out) == (2, "")
    assert "m on t: the rows say 6 and 24 layers" in found.err
    assert "give different models different names" in found.err


@pytest.mark.parametrize(("full", "frozen"), [(0.0, 0.1), (-0.11, 0.1), (-0.11, -0.2)])
def test_a_reference_at_or_below_zero_has_not_learnt(
    run: Run, path: Path, full: float, frozen: float
) -> None:
    for chance in ("0", ""):  # a correlation's is 0 even where nobody says so
        lines = [
            line(depth, quality, seed, metric="matthews", chance=chance)
            for depth, quality in ((0, full), (3, frozen))
            for seed in (1, 2, 3)
        ]
        status, (answer,) = answers(run, write(path, lines))
        assert status == 3 and answer["reason"] == "full_model_did_not_learn"
        assert answer["operating_point"] is answer["corrected_operating_point"] is None


@pytest.mark.parametrize("frozen", [-0.34, -0.21])
def test_of_a_reference_below_zero_that_learnt_no_share_is_kept(
    run: Run, path: Path, frozen: float
) -> None:
    scores = {"metric": "neg_rmse", "chance": -0.52}
    lines = [*seeds(0, -0.3, **scores), *seeds(3, frozen, **scores)]
    status, (answer,) = answers(run, write(path, lines))
    assert status == 3 and answer["reason"] == "full_model_not_above_zero"
    assert answer["operating_point"] is answer["corrected_operating_point"] is None
    shown = run("answer", "--from", path)
    assert "neg rmse of -30.0 ± 1.0 is not above 0, so that no share of it" in shown.out
    assert "misses the target" not in shown.out


def test_whether_a_reference_below_zero_of_an_unknown_metric_learnt_is_not_known(
    run: Run, path: Path
) -> None:
    """An error with a minus may be a good one; where guessing lies nobody says."""
    lines = [
        line(depth, quality, seed, metric="", chance="")
        for depth, quality in ((0, -0.2), (3, 0.3))
        for seed in (1, 2, 3)
    ]
    status, (answer,) = answers(run, write(path, lines))
    assert status == 3 and answer["reason"] == "full_model_not_above_zero"


def test_constant_predictions_are_counted_as_failed_seeds(run: Run, path: Path) -> None:
    lines = [*seeds(0, 0.9), line(4, 0.5, 1), line(4, 0.89, 2), line(4, 0.5, 3)]
    _, (answer,) = answers(run, write(path, lines))
    assert isinstance(answer["curve"], list)
    assert answer["curve"][1]["failed_seeds"] == 2
    assert "seeds_failed" in [warning["code"] for warning in answer["warnings"]]
    lines = [line(depth, 0.5, seed) for depth in (0, 3) for seed in (1, 2, 3)]
    status, (answer,) = answers(run, write(path, lines))
    assert status == 3 and answer["reason"] == "full_model_did_not_learn"


def test_percentages_are_asked_about_not_guessed(run: Run, path: Path) -> None:
    lines = [line(0, 92.7, 1, chance=50.9), line(3, 90.8, 1, chance=50.9)]
    found = run("operating-point", "--from", write(path, lines))
    assert (found.status, found.out) == (2, "")
    assert (
        "line 2: field 'quality' must be a fraction, at most 1, not 92.7" in found.err
        and "add --scale percent" in found.err
    )
    status, (answer,) = answers(run, path, "--scale", "percent")
    assert status == 0 and answer["chance"] == 0.509


def test_one_seed_with_two_results_is_refused(run: Run, path: Path) -> None:
    lines = [*seeds(0, 0.9), line(0, 0.83, 2)]
    found = run("operating-point", "--from", write(path, lines))
    assert (found.status, found.out) == (2, "")
    assert "the full model, learning rate 3e-5, seed 2: two rows disagree (0.9 and" in found.err
    assert answers(run, write(path, [*lines[:3], line(0, 0.83, 2, rate="1e-5")]))[0] == 3


@pytest.mark.parametrize(
    ("target", "complaint"),
    [
        ("0", "above 0 and up to 1"),
        ("1.5", "above 0 and up to 1"),
        ("90", "write 0.9"),
        ("-1", "above 0"),
        ("nan", "above 0"),
    ],
)
def test_impossible_targets(run: Run, path: Path, target: str, complaint: str) -> None:
    found = run("operating-point", "--from", write(path, seeds(0, 0.9)), "--target", target)
    assert (found.status, found.out) == (2, "") and complaint in found.err


def test_a_target_of_one_asks_for_all_of_the_quality(run: Run, path: Path) -> None:
    lines = [*seeds(0, 0.9), *seeds(3, 0.9), *seeds(4, 0.89)]
    status, (answer,) = answers(run, write(path, lines), "--target", "1")
    assert status == 0 and isinstance(answer["operating_point"], dict)
    assert answer["operating_point"]["frozen_layers"] == 3


@pytest.mark.parametrize("count", [2_500, pytest.param(12_500, marks=pytest.mark.thorough)])
def test_a_hundred_thousand_rows_of_an_export_are_answered_in_seconds(
    run: Run, path: Path, count: int
) -> None:
    """count: rows of each depth; quickly, a fifth of the hundred thousand."""
    names = ("model", "task", "layers", "frozen_layers", "seed", "lr")
    rows = [
        f"r{number},FINISHED,m{number % 4},t,12,{frozen},{number},3e-5,{quality:.5f},{number}"
        for frozen in (0, 6, 7, 8, 9, 10, 11, 12)
        for number in range(count)
        for quality in [0.9 - frozen / 100 + (number % 7) / 1000]
    ]
    header = f"run_id,status,{','.join(f'params.{name}' for name in names)}"
    path.write_text("\n".join((f"{header},metrics.eval_accuracy,metrics.eval_loss", *rows)))
    started = time.process_time()  # what else runs on the machine does not count
    found = run("operating-point", "--from", path, "--format", "csv")
    assert time.process_time() - started < 30 * count / 12_500 + 1
    told = list(csv.DictReader(io.StringIO(found.out)))
    assert [answer["full_seeds"] for answer in told] == [str(count // 4)] * 4
    assert f"{8 * count} rows: {8 * count} completed" in found.err


def test_a_quality_below_what_its_metric_can_be_is_refused(run: Run, path: Path) -> None:
    broken = write(path, [*seeds(0, 0.9), line(3, -1)])
    found = run("answer", "--from", broken)
    assert found.status == 2 and "Traceback" not in found.err
    assert "line 5: field 'quality' must be 0 or more for accuracy, not -1" in found.err
    guessing = write(path, [*seeds(0, 0.9, chance=-0.5), *seeds(3, 0.9, chance=-0.5)])
    assert "field 'chance' must be 0 or more" in run("answer", "--from", guessing).err
    correlations = [
        *seeds(0, 0.4, metric="matthews", chance=0),
        line(3, -0.1, metric="matthews", chance=0),
    ]
    assert run("answer", "--from", write(path, correlations)).status in (0, 3)
