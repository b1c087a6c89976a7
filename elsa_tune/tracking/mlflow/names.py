"""What the record is called in MLflow: tags, metrics, statuses, and what its pages show of them."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from elsa_tune.errors import SpaceError
from elsa_tune.specs.adapt.candidate import Candidate
from elsa_tune.specs.adapt.candidates import told_candidate
from elsa_tune.specs.trial import Phase, TrialStatus
from elsa_tune.specs.trial_facts import TrialFacts
from elsa_tune.tracking.journal_records import Report, SearchStarted
from elsa_tune.tracking.params import UnreadParams
from elsa_tune.tracking.record_names import DESCRIPTION, REPORT
from elsa_tune.words import percent, rate_text

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

# The tags by which runs are found again; values of other tags may be anything.
SEARCH_ID_TAG: Final = "elsa_tune.search_id"
SEARCH_TAG: Final = "elsa_tune.search"
# What versions between wrote in its place.
OTHER_SEARCH_TAG: Final = "elsa_tune.searching"
TRIAL_TAG: Final = "elsa_tune.trial"
STATUS_TAG: Final = "status"
ATTEMPT_TAG: Final = "attempt"
# On the run of a search that has ended: how many of its trials `resume` keeps.
TRIALS_DONE_TAG: Final = "trials_done"
# When the last attempt began, in milliseconds: what was logged before belongs to earlier attempts.
ATTEMPT_STARTED_TAG: Final = "elsa_tune.attempt_started"
# On a search's run, where the store refused a record for a doubtful reason: when it was tried last
# whether the store takes anything, in seconds since the epoch.
TRIED_TAG: Final = "elsa_tune.tried"
# A param cannot be changed in MLflow: the value that a later attempt had stands in this tag.
CHANGED_PARAM_PREFIX: Final = "param."
DECISION_PREFIX: Final = "decision."
PARENT_TAG: Final = "mlflow.parentRunId"
# The trial's quality under its selection; `quality` is each evaluation's.
TRIAL_QUALITY: Final = "trial_quality"
EVALUATION: Final = "evaluation"
# Of the search's run: the hours for which its trials have held a GPU; its step is the session.
GPU_HOURS: Final = "gpu_hours"

EXPERIMENT_PREFIX: Final = "elsa-tune/"
# A trial's predictions: their folder, and the tag that names the file in it.
PREDICTIONS: Final = "predictions"
# MLflow's limit (mlflow/utils/validation.py).
TAG_LENGTH: Final = 8000

# What MLflow calls the ends of trials and searches, by their statuses.
RUN_STATUS: Final[dict[str, str]] = {
    **dict.fromkeys(("completed", "stopped_early", "time_up"), "FINISHED"),
    **dict.fromkeys(("failed", "diverged"), "FAILED"),
    **dict.fromkeys(("interrupted", "killed"), "KILLED"),
}
# Without it MLflow 3 guesses, and shows a new experiment as one of language models.
EXPERIMENT_TAGS: Final = {"mlflow.experimentKind": "custom_model_development"}
# Another name of an evaluation's `quality` or `step`, which MLflow would draw again.
TWICE: Final = frozenset({"epoch"})
# Of a report's folder; a report in which no depth was measured has none.
FREEZE_CURVE: Final = "figures/freeze_curve.png"
_FIGURE = f"![freeze curve](get-artifact?path={REPORT}/{FREEZE_CURVE}&run_uuid={{}})"
# By metric of the parent run: the field of the curve in the answer's JSON.
_OF_CURVE = {
    "quality": "quality",
    "kept": "retention",
    "corrected": "corrected_retention",
    "seeds": "seeds",
}
# On the search's run: its answer in a few words, by the names of the columns that show it.
ANSWER_TAGS: Final = ("k", "kept", "certified", "rate")
# And where other ways than depths were compared, the cheapest that is good enough.
WAY_TAG: Final = "way"
# What either says where nothing can be recommended.
NO_ANSWER: Final = "no answer"
# The reason of a depths' answer where only the full model was measured.
_NO_DEPTHS = "no_frozen_depth"
_CERTIFIED = {"corrected_certified": "yes", "raw_certified": "yes, raw", "measured": "no"}
_POINTS = {
    "recommended_fine_tuned_layers": "recommendation",
    "fine_tuned_layers": "operating_point",
}
# The metric of what is certified, and the field that has it, by the answer's claim; the raw one
# where it names none.
_CERTIFIED_METRIC = "certified_fine_tuned_layers"
_CLAIMED = {"corrected": "corrected_certified"}


def search_of(tags: Mapping[str, str]) -> str | None:
    """Return the name of the search that a run belongs to; None where the run is not ours."""
    return tags.get(SEARCH_TAG) or tags.get(OTHER_SEARCH_TAG)


def after_prefix(prefix: str, tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags whose names begin so, by the rest of their names."""
    by_rest = {}
    for name, value in tags.items():
        if name.startswith(prefix):
            rest = name.removeprefix(prefix)
            by_rest[rest] = value
    return by_rest


def run_name(key: str, params: TrialFacts | UnreadParams, status: TrialStatus | None = None) -> str:
    """Return `N6 2e-5 s1`, or `N6 2e-5 explore, stopped early`; without a rate the key."""
    name = key
    if params.phase == Phase.PROBE:
        name = "linear probe"
    elif isinstance(params, TrialFacts) and params.learning_rate is not None:
        candidate = params.candidate
        what = candidate.label
        if what.isdecimal():  # a bare number would not say of what
            what = candidate.key
        rate = rate_text(params.learning_rate)
        run = params.phase.value
        if params.phase is Phase.MEASURE:
            run = f"s{params.seed}"
        name = f"{what} {rate} {run}"
    if status in (None, TrialStatus.COMPLETED):
        return name
    end = status.value.replace("_", " ")
    return f"{name}, {end}"


def metric_of(params: TrialFacts | UnreadParams) -> object:
    """Return the name of the trial's headline metric, None where that is not known."""
    if isinstance(params, UnreadParams):
        return params.values.get("metric")
    return params.metric


def curve_reports(answers: Any, time: float) -> list[Report]:
    """Return the curve as metrics, and the operating points; [] for several answers.

    A depth's step is its frozen layers, another candidate's its rank, or the first step behind all
    before it where that is taken or is no whole number.
    """
    answer = _only(answers)
    if answer is None:
        return []
    by_step: dict[int, dict[str, float]] = {0: {}}
    for candidate, point in _tested_points(answer):
        step = int(candidate.rank)
        is_free = step == candidate.rank and step not in by_step
        if not candidate.is_depth and not is_free:
            step = max(by_step) + 1
        metrics = by_step.setdefault(step, {})
        for metric, name in _OF_CURVE.items():
            value = point[name]
            if value is not None:
                metrics.setdefault(metric, float(value))
    claimed = _CLAIMED.get(answer.get("claim", ""), "certified")
    points_by_metric = {**_POINTS, _CERTIFIED_METRIC: claimed}
    for metric, name in points_by_metric.items():
        decision = answer.get(name) or {}
        tuned = decision.get("fine_tuned_layers")
        if tuned is not None:
            by_step[0][metric] = float(tuned)
    reports = []
    for step, metrics in by_step.items():
        report = Report(trial="", evaluation=0, step=step, metrics=metrics, time=time)
        reports.append(report)
    return reports


def _tested_points(answer: Mapping[str, Any]) -> list[tuple[Candidate, Mapping[str, Any]]]:
    """Return an answer's measured points with their candidates, depths before others."""
    depths: list[tuple[Candidate, Mapping[str, Any]]] = []
    others: list[tuple[Candidate, Mapping[str, Any]]] = []
    for point in answer.get("curve", ()):
        candidate = _candidate_of(point)
        if candidate is None or not candidate.is_tested or point["quality"] is None:
            continue
        of_its_kind = depths if candidate.is_depth else others
        of_its_kind.append((candidate, point))
    return [*depths, *others]


def _candidate_of(point: Mapping[str, Any]) -> Candidate | None:
    """Return the candidate of a curve's point in an answer's JSON."""
    try:
        return told_candidate(point)
    except SpaceError:
        return None


def answer_tags(answers: Any) -> dict[str, str]:
    """Return what the lists of runs show of an answer, all of ANSWER_TAGS; {} for several."""
    answer = _only(answers)
    if answer is None:
        return {}
    advice = answer.get("recommendation")
    if advice is None:  # the answer of an older search
        return {}
    tuned = advice.get("fine_tuned_layers")
    layers = answer.get("layers")
    label = advice.get("label")  # of what is no depth
    tags = dict.fromkeys(ANSWER_TAGS, "-")
    if tuned is None and label is None:
        tags["k"] = NO_ANSWER
        return tags
    if advice["action"] == "linear_model":
        probe = answer.get("linear_probe") or {}
        retention = probe.get("retention")
        tags["k"] = f"0 of {layers} (linear model)"
        tags["kept"] = percent(retention)
        tags["certified"] = "no"
        return tags
    tags["k"] = label
    if label is None:
        tags["k"] = f"{tuned} of {layers}"
    retention = _retention_of(answer, advice)
    tags["kept"] = percent(retention)
    basis = str(advice.get("basis"))
    tags["certified"] = _CERTIFIED.get(basis, "-")
    rate = advice.get("learning_rate")
    if rate is not None:
        tags["rate"] = rate_text(rate)
    return tags


def _retention_of(answer: Mapping[str, Any], advice: Mapping[str, Any]) -> float | None:
    """Return what the point keeps that an answer recommends; None where its curve lacks it."""
    for point in answer.get("curve", ()):
        if point["fine_tuned_layers"] != advice.get("fine_tuned_layers"):
            continue
        if point.get("label") != advice.get("label"):
            continue
        candidate = _candidate_of(point)
        # What is only drawn beside the curve may leave as many layers to fine-tune.
        if candidate is not None and candidate.is_tested:
            retention: float | None = point["retention"]
            return retention
    return None


def search_run_name(search: str, answers: Any, comparisons: Any = None) -> str:
    """`4 of 6, 99.8 %: demo`: the answer first, for MLflow cuts long names.

    Of compared ways the recommended one stands before the answer of the depths.
    """
    tags = answer_tags(answers) | comparison_tags(comparisons, answers)
    way = tags.get(WAY_TAG, "-")
    depths = tags.get("k", "-")
    if way == depths:
        way = "-"
    kept = tags.get("kept", "-")
    if kept != "-":
        depths += f", {kept}"
    told = [text for text in (way, depths) if text != "-"]
    if not told:
        return search
    found = [text for text in told if text != NO_ANSWER]
    shown = "; depths ".join(found) or NO_ANSWER
    return f"{shown}: {search}"


def comparison_tags(comparisons: Any, answers: Any = None) -> dict[str, str]:
    """Return what the lists of runs show of a comparison of ways; {} for several.

    It is the cheapest way that keeps the target of the best, a depth as in `k`. answers: of the
    same search; where it compared no depths, theirs is not lacking.
    """
    comparison = _only(comparisons)
    if comparison is None:
        return {}
    tags = {WAY_TAG: NO_ANSWER}
    recommended = comparison.get("recommended")
    if isinstance(recommended, dict):
        tags[WAY_TAG] = str(recommended.get("label"))
        if recommended.get("frozen_layers") is not None:
            tuned = recommended.get("fine_tuned_layers")
            tags[WAY_TAG] = f"{tuned} of {comparison.get('layers')}"
    answer = _only(answers)
    if answer is not None and answer.get("reason") == _NO_DEPTHS:
        tags["k"] = "-"
    return tags


def _only(answers: Any) -> dict[str, Any] | None:
    """Return the one answer of a recorded decision; None for none and for several."""
    if not isinstance(answers, list) or len(answers) != 1:
        return None
    answer = answers[0]
    if not isinstance(answer, dict):
        return None
    return answer


def described(decisions: Mapping[str, Any], run_id: str, *, has_figure: bool) -> dict[str, str]:
    """Return a search's description as a tag, with its figure where the run has one.

    {} without any description.
    """
    if DESCRIPTION not in decisions:
        return {}
    note = str(decisions[DESCRIPTION])
    if has_figure:
        figure = _FIGURE.format(run_id)
        note += f"\n\n{figure}"
    return {"mlflow.note.content": note}


def data_input(search: SearchStarted) -> "DatasetInput":
    """Return the search's data as MLflow lists it: by name and fingerprint, with sizes."""
    from mlflow.entities import Dataset, DatasetInput, InputTag

    sizes = {}
    for name in ("train_examples", "holdout_examples", "evaluation_examples"):
        size = str(search.params.get(name, ""))
        if size.isdigit():
            sizes[name] = int(size)
    fingerprint = search.tags.get("fingerprint.data", "unknown")
    _, _, digest = fingerprint.rpartition(":")
    source = {"task": search.task}
    data = Dataset(
        name=search.task,
        digest=digest[:36],  # MLflow's limit
        source_type="elsa-tune",
        source=json.dumps(source),
        profile=json.dumps(sizes),
    )
    context = InputTag("mlflow.data.context", "training and evaluation")
    return DatasetInput(data, [context])


def tag_text(value: Any) -> str:
    """Return a decision as a tag: text as it is, else JSON, inner lists counted where too long."""
    if isinstance(value, str):
        return value
    text = json.dumps(value, ensure_ascii=False)
    if len(text) <= TAG_LENGTH:
        return text
    shorter = _shorter(value)
    return json.dumps(shorter, ensure_ascii=False)


def _shorter(value: Any, inner: bool = False) -> Any:
    if isinstance(value, dict):
        return {name: _shorter(item, inner=True) for name, item in value.items()}
    if isinstance(value, list) and inner:
        return f"{len(value)} items"
    if isinstance(value, list):
        return [_shorter(item, inner=True) for item in value]
    return value
