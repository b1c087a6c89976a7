"""Names that stand in journals, stores, files and other people's programs already.

Every name is a literal here: a name may be added, but none may go or be spelt otherwise, for
whatever was recorded under it would be lost. `tests/integration/test_recorded_before.py` has the
names that only a search and a real store write.
"""

from __future__ import annotations

import dataclasses
import enum
import json
import subprocess
import sys
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from elsa_tune import files
from elsa_tune.analysis.answer import Action, Basis, Doubt, Reason
from elsa_tune.analysis.answer_json import (
    ANSWER_COLUMNS,
    CURVE_COLUMNS,
    answer_object,
    freeze_curve_object,
)
from elsa_tune.analysis.answers import freeze_curves
from elsa_tune.analysis.comparing.ways import WayBasis
from elsa_tune.analysis.warning import WarningCode
from elsa_tune.exporting import model as exported_model
from elsa_tune.report import folder as report_folder
from elsa_tune.results.columns import COLUMNS, READ_COLUMNS
from elsa_tune.searching.planning import strategies
from elsa_tune.searching.record import facts_of, started
from elsa_tune.searching.specification import load_specification, save_specification
from elsa_tune.specs.adapt import candidates
from elsa_tune.specs.adapt.freeze import FreezeDepth
from elsa_tune.specs.border import Border
from elsa_tune.specs.cost import Cost
from elsa_tune.specs.model import ModelSource
from elsa_tune.specs.policy import SeedTerms
from elsa_tune.specs.row_findings import FindingCode, RowFinding
from elsa_tune.specs.search import SamplerName, SearchSpec
from elsa_tune.specs.task import Metric, TaskKind
from elsa_tune.specs.trial import Phase, Pooling, Precision, PrefixCache, Selection, TrialStatus
from elsa_tune.tracking import record_names
from elsa_tune.tracking.artifacts import contents
from elsa_tune.tracking.journal import lock_of
from elsa_tune.tracking.journal_records import (
    Decision,
    LatePredictions,
    Record,
    Report,
    SearchEnded,
    SearchStarted,
    SearchStatus,
    TrialEnded,
    TrialStarted,
    encode,
)
from elsa_tune.tracking.mlflow import names as mlflow_names
from elsa_tune.tracking.overflow import Overflow
from elsa_tune.tracking.params import param_texts, params_record, read_params, search_texts
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from elsa_tune.tracking.uris import TRACKING_VARIABLE
from elsa_tune.training import saved as saved_model
from elsa_tune.training.adapt.trainable import Trainable
from elsa_tune.training.bundle.members import ABOUT, BRANCHES, PREFIX
from elsa_tune.training.forward import prefix_store
from tests.unit.report_examples import answers_of
from tests.unit.result_rows import falling_curve, row
from tests.unit.search_examples import make_spec
from tests.unit.test_probe_answer import probe

# One line of a journal for each kind.
RECORDS: dict[str, tuple[Record, str]] = {
    "search_started": (
        SearchStarted(name="a", search_id="b", attempt=1, model="m", task="t"),
        "kind time name search_id attempt model task params tags",
    ),
    "trial_started": (TrialStarted(trial="t"), "kind time trial attempt params tags"),
    "report": (
        Report(trial="t", evaluation=1, step=1),
        "kind time trial attempt evaluation step metrics notes tags restored",
    ),
    "trial_ended": (
        TrialEnded(trial="t", status=TrialStatus.COMPLETED),
        "kind time trial attempt status metrics message artifact tags",
    ),
    "late_predictions": (LatePredictions(trial="t", artifact="a"), "kind time trial artifact"),
    "decision": (Decision(what="answer", value=1), "kind time what value"),
    "search_ended": (SearchEnded(status=SearchStatus.COMPLETED), "kind time status message"),
}
# Of a trial: in the journal, and as MLflow's params.
TRIAL_PARAMS = """
model task phase learning_rate frozen_layers embeddings_frozen fine_tuned_layers layers seed metric
chance evaluation_examples evaluation_units given_rates looks search epochs batch_size max_length
train_size
subset_seed warmup_ratio weight_decay max_grad_norm evaluations_per_epoch frozen_dropout precision
prefix_cache selection holdout pooling standardize_targets eval_batch_size comparison
"""
# Of a search: in the journal, and as MLflow's params and tags.
SEARCH_PARAMS = """
space layers exploring_trials measuring_trials sampler seed seeds target train_examples
holdout_examples evaluation_examples comparison depths asha chance command
"""
SEARCH_TAGS = """
fingerprint.weights fingerprint.data machine row_findings policy cpus_per_trial gpus_per_trial
"""
# What must agree before results are pooled: rows of earlier searches have this text.
COMPARISON = (
    "weights=54b74fa3b751, data=d91323a5298f, metric=accuracy, epochs=2, batch_size=16, "
    "max_length=128, train_size=100, subset_seed=0, warmup_ratio=0.1, weight_decay=0.01, "
    "max_grad_norm=1.0, evaluations_per_epoch=1, frozen_dropout=False, precision=auto, "
    "selection=last"
)
# Of `search.json`, what is nested behind a full stop.
SPECIFICATION = """
name search_id model model.name model.source model.location model.revision layers task task.name
task.kind task.text_columns task.label_column task.classes task.metric task.source task.companions
task.published_chance task.cleaning task.cleaning.drop_leaked task.cleaning.drop_duplicates
task.cleaning.drop_contradictions task.cleaning.merge_labels task.cleaning.missing_labels
task.group_column recipe
recipe.epochs recipe.batch_size recipe.max_length recipe.train_size recipe.subset_seed
recipe.warmup_ratio recipe.weight_decay recipe.max_grad_norm recipe.evaluations_per_epoch
recipe.frozen_dropout recipe.precision recipe.prefix_cache recipe.selection recipe.holdout
recipe.pooling recipe.standardize_targets recipe.eval_batch_size space depths depths.frozen_layers
depths.embeddings_frozen explored explored.frozen_layers explored.embeddings_frozen rates tries
sampler asha asha.grace asha.reduction_factor asha.margin seeds seed resources resources.cpus
resources.gpus tracking_uri address planned_seeds strategy strategy_settings target until_certified
thorough
ladder_error extend extend.low extend.high extend.tries exploring_limit max_time checkpoint
artifacts hung_after max_failures cpus_per_trial gpus_per_trial chance
train_examples holdout_examples evaluation_examples evaluation_units
fingerprints fingerprints.weights
fingerprints.data versions linear_probe findings findings.code findings.count findings.of
findings.where findings.exact findings.same_label findings.texts findings.groups
findings.names findings.named findings.max_length findings.read findings.longest findings.most
command earlier earlier.names earlier.seeds_are_fresh policy
policy.tries policy.extension policy.noise policy.rate_factor policy.widest_gap policy.least_step
policy.cheap_cost policy.cheap_patience policy.first_points policy.ask_limit policy.grace
policy.exploring_share policy.deep_share policy.ladder_depths policy.looks policy.ladder_looks
policy.thorough_seeds policy.above_chance policy.clear policy.likely policy.free_cost
policy.promising policy.no_promise policy.error policy.ladder_error policy.first_look_share
policy.fewest_seeds policy.fewest_freedom policy.fewest_units
policy.approximation_error policy.approximation_error_of_pairs policy.seed_terms
policy.seeds_before_giving_up policy.failed_loss policy.failed_spreads
policy.by_seeds_alone
policy.prior_freedom policy.least_example_share
policy.learning_share policy.at_chance policy.exact_decimals policy.same_score policy.rounding
policy.claim policy.extension.low policy.extension.high policy.extension.tries
"""
# By the kind of learning rates and of sources: a part of `search.json`, and its path.
PARTS: dict[str, tuple[str, dict[str, Any]]] = {
    "a list of rates": ("rates", {"values": [2e-5, 5e-5]}),
    "a range of rates": ("rates", {"low": 1e-5, "high": 5e-5, "step": None}),
    "rates in steps": ("rates", {"low": 1e-5, "high": 5e-5, "step": 1e-5}),
    "glue": ("task.source", {"config": "rte", "folder": "RTE", "data_dir": "/glue"}),
    "files": (
        "task.source",
        {"format": "csv", "train": ["/a.csv"], "evaluation": ["/b.csv"], "evaluation_share": None},
    ),
    "the standard library": ("task.source", {"shuffled_labels": True}),
    "a data set": (
        "task.source",
        {
            "location": "owner/name",
            "revision": "0" * 40,
            "config": "plain",
            "train": "train",
            "evaluation": None,
            "evaluation_share": 0.1,
        },
    ),
}
ANSWER_JSON = """
schema_version model task train_size search metric selection layers chance target full full.quality
full.std full.seeds full.failed_seeds full.learning_rate best best.frozen_layers best.quality
operating_point operating_point.frozen_layers operating_point.fine_tuned_layers
operating_point.quality operating_point.retention operating_point.corrected_retention
operating_point.learning_rate operating_point.saves operating_point.saves.trainable_parameters
operating_point.saves.train_seconds operating_point.saves.peak_memory_mb corrected_operating_point
corrected_operating_point.frozen_layers corrected_operating_point.fine_tuned_layers
corrected_operating_point.quality corrected_operating_point.retention
corrected_operating_point.corrected_retention corrected_operating_point.learning_rate
corrected_operating_point.saves certified certified.frozen_layers certified.fine_tuned_layers
certified.confidence certified.procedure corrected_certified corrected_certified.frozen_layers
corrected_certified.fine_tuned_layers corrected_certified.confidence corrected_certified.procedure
plausible_fine_tuned_layers operating_point_within_given_rates every_larger_k_passes reason
linear_probe linear_probe.quality linear_probe.retention linear_probe.corrected_retention
linear_probe.train_examples linear_probe.evaluation_examples linear_probe.features curve
curve.frozen_layers curve.embeddings_frozen curve.fine_tuned_layers curve.quality curve.std
curve.ci_low curve.ci_high curve.seeds curve.failed_seeds curve.learning_rate curve.rate_at_border
curve.retention curve.corrected_retention curve.explored curve.stopped_early curve.contrast
curve.contrast.value curve.contrast.ci_low curve.contrast.ci_high curve.contrast.lower_bound
curve.contrast.look curve.corrected_contrast curve.corrected_contrast.value
curve.corrected_contrast.ci_low curve.corrected_contrast.ci_high
curve.corrected_contrast.lower_bound curve.corrected_contrast.look warnings warnings.code
warnings.text next_step recommendation recommendation.action recommendation.frozen_layers
recommendation.fine_tuned_layers recommendation.quality recommendation.learning_rate
recommendation.basis recommendation.doubts recommendation.headline recommendation.lines decided_by
"""
CURVE_JSON = """
schema_version model task train_size search metric selection layers chance linear_probe curve
curve.frozen_layers curve.embeddings_frozen curve.fine_tuned_layers curve.quality curve.std
curve.ci_low curve.ci_high curve.seeds curve.failed_seeds curve.learning_rate curve.rate_at_border
curve.retention curve.corrected_retention curve.explored curve.stopped_early warnings warnings.code
warnings.text
"""
# CSV columns in their order: whoever reads them by number finds them where they were.
COLUMNS_OF_ANSWERS = """
model task train_size search metric selection target layers chance full_quality full_std full_seeds
full_failed_seeds full_learning_rate best_frozen_layers best_quality operating_point_frozen_layers
operating_point_fine_tuned_layers operating_point_quality operating_point_retention
operating_point_corrected_retention operating_point_learning_rate
operating_point_saves_trainable_parameters operating_point_saves_train_seconds
operating_point_saves_peak_memory_mb corrected_operating_point_frozen_layers
corrected_operating_point_fine_tuned_layers corrected_operating_point_quality
corrected_operating_point_retention corrected_operating_point_corrected_retention
corrected_operating_point_learning_rate corrected_operating_point_saves_trainable_parameters
corrected_operating_point_saves_train_seconds corrected_operating_point_saves_peak_memory_mb
certified_frozen_layers certified_fine_tuned_layers certified_confidence certified_procedure
corrected_certified_frozen_layers corrected_certified_fine_tuned_layers
corrected_certified_confidence corrected_certified_procedure plausible_fine_tuned_layers
every_larger_k_passes reason decided_by linear_probe_quality linear_probe_retention
linear_probe_corrected_retention linear_probe_train_examples linear_probe_evaluation_examples
linear_probe_features next_step warnings operating_point_within_given_rates_frozen_layers
operating_point_within_given_rates_fine_tuned_layers operating_point_within_given_rates_quality
operating_point_within_given_rates_lowest_rate operating_point_within_given_rates_highest_rate
recommendation_action recommendation_frozen_layers recommendation_fine_tuned_layers
recommendation_quality recommendation_learning_rate recommendation_basis recommendation_doubts
recommendation_headline
"""
COLUMNS_OF_CURVES = """
model task train_size search metric selection layers chance frozen_layers embeddings_frozen
fine_tuned_layers quality std ci_low ci_high seeds failed_seeds learning_rate retention
corrected_retention explored stopped_early rate_at_border
"""
COLUMNS_OF_RESULTS = """
model task layers frozen_layers quality seed runs learning_rate train_size status phase
embeddings_frozen chance metric std epochs selection search comparison examples train_seconds
peak_memory_mb trainable_parameters
"""
# Which a table has only where they say anything.
OTHER_COLUMNS_OF_RESULTS = """
candidate method evaluation_units planned_target row_findings earlier_searches search_id
"""
# Of values that are written as text.
VALUES: dict[type[enum.StrEnum], str] = {
    Phase: "explore measure probe final",
    TrialStatus: "planned running completed stopped_early failed diverged interrupted",
    SearchStatus: "running completed interrupted failed time_up killed",
    SamplerName: "tpe random grid",
    Metric: "accuracy f1 f1_macro matthews pearson spearman",
    TaskKind: "classification regression",
    Selection: "last best_epoch holdout",
    Precision: "auto fp32 tf32 bf16",
    PrefixCache: "fp32 bf16 none",
    Pooling: "head mean",
    ModelSource: "hub directory package download",
    Border: "low high",
    SeedTerms: "welch drawn",
    Action: "fine_tune linear_model wait",
    Basis: "corrected_certified raw_certified measured full_model",
    Doubt: """search_incomplete leaked_rows constant_answer_reaches_target interval_too_wide
        full_model_below_probe""",
    Reason: """no_measurements no_full_model full_model_did_not_learn no_frozen_depth
        full_model_not_above_zero
        nothing_reaches_target too_few_seeds chance_unknown looks_not_planned rates_not_fresh
        epochs_not_fresh
        not_planned_to_certify looks_not_recorded examples_unknown no_common_depth too_few_units
        one_way no_way_learnt seeds_by_results seeds_missing""",
    Cost: "time memory parameters latency bundle",
    WayBasis: "certified score_certified measured",
    FindingCode: """leaked_rows contradicting_labels classes_not_evaluated classes_not_trained
        labels_alike label_looks_missing rows_lost duplicate_rows empty_texts
        leaked_groups few_units cut_texts""",
    WarningCode: """constant_answer_reaches_target corrected_answer_disagrees chance_unknown
        learning_untested depths_below_probe probe_reaches_target larger_k_misses_target
        best_is_not_full_model not_monotone embeddings_only_is_best depths_not_measured
        rate_at_border one_rate_for_all_depths depths_differ_in_seeds depths_differ_in_tries
        leaked_rows contradicting_labels classes_not_evaluated classes_not_trained labels_alike
        leaked_groups few_units cut_texts
        label_looks_missing rows_lost duplicate_rows search_incomplete several_rates_measured
        seeds_failed trials_not_counted repeated_rows rows_doubled examples_left_out
        predictions_not_used searches_pooled
        no_corrected_joint_answer tasks_excluded depths_not_measured_for_every_task
        tasks_differ_in_train_size""",
}


def key_paths(value: Any, before: str = "") -> set[str]:
    """Return every key of a JSON value, behind those that it lies in; a list adds nothing."""
    paths: set[str] = set()
    if isinstance(value, dict):
        for name, inner in value.items():
            paths.add(f"{before}{name}")
            paths |= key_paths(inner, f"{before}{name}.")
    if isinstance(value, list | tuple):
        for inner in value:
            paths |= key_paths(inner, before)
    return paths


def lost(persisted: str, written: Collection[str]) -> list[str]:
    """Return the persisted names that are not written any more."""
    return [name for name in persisted.split() if name not in written]


def full_spec(**changes: Any) -> SearchSpec:
    """Return a specification in which nothing optional is left out."""
    finding = RowFinding(code=FindingCode.LEAKED_ROWS, count=1, of=2)
    return make_spec(findings=(finding,), command="elsa-tune search", **changes)


def saved(spec: SearchSpec, folder: Path) -> dict[str, Any]:
    """Return the JSON of a specification that is saved in a folder."""
    paths = SearchPaths(folder, spec.name)
    paths.check_writable()
    save_specification(spec, paths)
    written: dict[str, Any] = json.loads(paths.specification.read_text())
    return written


def test_tags_prefixes_and_experiments_keep_their_names() -> None:
    persisted = {
        "SEARCH_ID_TAG": "elsa_tune.search_id",
        "SEARCH_TAG": "elsa_tune.search",
        "OTHER_SEARCH_TAG": "elsa_tune.searching",
        "TRIAL_TAG": "elsa_tune.trial",
        "JOURNAL_TAG": "elsa_tune.journal",
        "HOST_TAG": "elsa_tune.host",
        "STATUS_TAG": "status",
        "ATTEMPT_TAG": "attempt",
        "TRIALS_DONE_TAG": "trials_done",
        "ATTEMPT_STARTED_TAG": "elsa_tune.attempt_started",
        "CHANGED_PARAM_PREFIX": "param.",
        "DECISION_PREFIX": "decision.",
        "PARENT_TAG": "mlflow.parentRunId",
        "TRIAL_QUALITY": "trial_quality",
        "EVALUATION": "evaluation",
        "EXPERIMENT_PREFIX": "elsa-tune/",
        "PREDICTIONS": "predictions",
        "ANSWER": "answer",
        "DESCRIPTION": "description",
        "LADDER": "ladder",
        "REPORT": "report",
        "COMMAND": "command",
        "MACHINE_TAG": "machine",
        "FINDINGS_TAG": "row_findings",
        "POLICY_TAG": "policy",
        "EARLIER_TAG": "earlier_searches",
    }
    written = vars(mlflow_names) | vars(record_names)
    assert {name: written[name] for name in persisted} == persisted
    assert mlflow_names.RUN_STATUS == {
        "completed": "FINISHED",
        "stopped_early": "FINISHED",
        "time_up": "FINISHED",
        "failed": "FAILED",
        "diverged": "FAILED",
        "interrupted": "KILLED",
        "killed": "KILLED",
    }


def test_strategies_keep_their_names() -> None:
    assert set(strategies._STRATEGIES) == {"even", "hunt"}
    assert {strategy.name for strategy in strategies._STRATEGIES.values()} == {"even", "hunt"}


def test_methods_of_adaptation_keep_their_names() -> None:
    names = {"freeze", "lora", "bitfit"}
    assert set(candidates._METHODS) == names
    assert {method.method for method in candidates._METHODS.values()} == names


@pytest.mark.parametrize(
    ("label", "key", "record"),
    [
        ("6", "N6", {"frozen_layers": 6, "embeddings_frozen": True}),
        ("bitfit", "bitfit", {"bitfit": True}),
        (
            "lora",
            "lora",
            {"lora_r": 8, "lora_alpha": 16, "lora_target_modules": "all-linear"},
        ),
        (
            "lora-last3-r16-a32-query+value",
            "lora-last3-r16-a32-query-value",
            {
                "lora_r": 16,
                "lora_alpha": 32,
                "lora_target_modules": "query+value",
                "lora_last": 3,
            },
        ),
    ],
)
def test_ways_keep_their_labels_keys_and_records(
    label: str, key: str, record: dict[str, Any]
) -> None:
    candidate = candidates.read_candidate(label)
    assert (candidate.label, candidate.key, candidate.record()) == (label, key, record)
    assert candidates.recorded_candidate(record) == candidate
    trial = make_spec().trial(Phase.MEASURE, candidate, 3e-4, 1)
    assert trial.key == f"measure-{key}-lr3e-04-s1"


def test_an_adapter_keeps_its_folder() -> None:
    assert saved_model.ADAPTER == "adapter"


def test_schemes_of_stores_keep_their_names() -> None:
    # MLflow's store has every other scheme. Other tests of this process may have added their own.
    code = "from elsa_tune.tracking import stores; print(sorted(stores._STORES))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


@pytest.mark.parametrize("tag", ["elsa_tune.search", "elsa_tune.searching"])
def test_a_run_is_found_under_either_tag(tag: str) -> None:
    assert mlflow_names.search_of({tag: "mine"}) == "mine"


def test_an_answer_in_mlflow_keeps_the_names_of_its_metrics_and_tags() -> None:
    [answer] = answers_of([*falling_curve(), *falling_curve(phase=Phase.EXPLORE)])
    recorded = json.loads(json.dumps([answer_object(answer)]))
    metrics = {
        name for report in mlflow_names.curve_reports(recorded, 0.0) for name in report.metrics
    }
    persisted = "quality kept corrected seeds recommended_fine_tuned_layers fine_tuned_layers"
    assert not lost(persisted, metrics)
    assert not lost("k kept certified rate", mlflow_names.answer_tags(recorded))
    compared = [{"recommended": {"label": "lora"}}]
    assert not lost("way", mlflow_names.comparison_tags(compared))


def test_exported_models_keep_the_names_of_what_was_trained() -> None:
    kept = Trainable(frozenset(), first_trained_layer=3, embeddings_train=False).record()
    assert kept == {"first_trained_layer": 3, "embeddings_train": False}


def test_runs_keep_their_names() -> None:
    depth = {"learning_rate": 2e-5, "frozen_layers": 6, "embeddings_frozen": True}
    measured = {**depth, "phase": "measure", "seed": 1}
    explored = {**depth, "phase": "explore", "seed": 0, "frozen_layers": 0}
    shown = {
        mlflow_names.run_name("k", read_params(measured)),
        mlflow_names.run_name("k", read_params(explored), TrialStatus.STOPPED_EARLY),
        mlflow_names.run_name("probe-N6", read_params({"phase": "probe"})),
    }
    assert shown == {"N6 2e-5 s1", "embeddings 2e-5 explore, stopped early", "linear probe"}


@pytest.mark.parametrize("kind", RECORDS)
def test_a_line_of_the_journal_keeps_its_fields(kind: str) -> None:
    record, persisted = RECORDS[kind]
    written = json.loads(encode(record))
    assert written["kind"] == kind
    assert not lost(persisted, written)


def test_params_and_tags_keep_their_names() -> None:
    spec = full_spec()
    trial = spec.trial(Phase.MEASURE, FreezeDepth.of(3), 1e-4, 1)
    facts = facts_of(spec, trial)
    assert not lost(TRIAL_PARAMS, params_record(facts))
    assert set(param_texts(facts)) == set(TRIAL_PARAMS.split())
    search = started(spec, 1)
    assert not lost(SEARCH_PARAMS, search.params)
    assert not lost(SEARCH_PARAMS, search_texts(search.params))
    assert not lost(SEARCH_TAGS, search.tags)


def test_what_must_agree_before_results_are_pooled_is_the_same_text() -> None:
    assert str(make_spec().comparison) == COMPARISON


def test_a_specification_keeps_its_fields(tmp_path: Path) -> None:
    from elsa_tune.specs.search import Extension

    assert not lost(SPECIFICATION, key_paths(saved(full_spec(extend=Extension()), tmp_path)))


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_specification_is_read_and_written_as_it_is(part: str, tmp_path: Path) -> None:
    place, value = PARTS[part]
    written = saved(full_spec(), tmp_path)
    *before, last = place.split(".")
    inner = written
    for name in before:
        inner = inner[name]
    inner[last] = value
    paths = SearchPaths(tmp_path, "example")
    paths.specification.write_text(json.dumps(written))
    spec = load_specification(paths)
    assert saved(dataclasses.replace(spec, name="again"), tmp_path) == {**written, "name": "again"}


@pytest.mark.parametrize(
    ("phase", "depth", "rate", "seed", "key"),
    [
        (Phase.EXPLORE, 0, 2e-5, 0, "explore-N0-lr2e-05-s0"),
        (Phase.MEASURE, 3, 3e-5, 2, "measure-N3-lr3e-05-s2"),
        (Phase.MEASURE, "embeddings", 1.25e-3, 1, "measure-Nembeddings-lr1.25e-03-s1"),
        (Phase.FINAL, 6, 0.1, 7, "final-N6-lr1e-01-s7"),
    ],
)
def test_trials_keep_their_keys(
    phase: Phase, depth: int | str, rate: float, seed: int, key: str
) -> None:
    assert make_spec().trial(phase, FreezeDepth.of(depth), rate, seed).key == key


def test_the_json_of_answers_and_curves_keeps_its_keys() -> None:
    rows = [*falling_curve(task="rte"), *falling_curve(task="mrpc"), probe(0.7)]
    costs = {"train_seconds": 10.0, "peak_memory_mb": 100.0, "trainable_parameters": 7.0}
    rows = [dataclasses.replace(one, **costs) for one in rows]
    answers = [answer_object(answer) for answer in answers_of(rows)]
    assert not lost(ANSWER_JSON, key_paths(answers))
    repeated = [*rows, rows[0]]  # so that there is a warning
    curves = [freeze_curve_object(curve) for curve in freeze_curves(repeated)]
    assert not lost(CURVE_JSON, key_paths(curves))
    assert {one["schema_version"] for one in (*answers, *curves)} == {2}


@pytest.mark.parametrize(
    ("persisted", "columns"),
    [
        (COLUMNS_OF_ANSWERS, ANSWER_COLUMNS),
        (COLUMNS_OF_CURVES, CURVE_COLUMNS),
        (COLUMNS_OF_RESULTS, COLUMNS),
    ],
)
def test_columns_keep_their_names_and_places(persisted: str, columns: Iterable[str]) -> None:
    kept = persisted.split()
    assert list(columns)[: len(kept)] == kept


def test_other_columns_of_results_keep_their_names() -> None:
    assert not lost(OTHER_COLUMNS_OF_RESULTS, READ_COLUMNS)


@pytest.mark.parametrize("values", VALUES)
def test_values_keep_their_spelling(values: type[enum.StrEnum]) -> None:
    assert not lost(VALUES[values], {one.value for one in values})


def test_files_keep_their_names(tmp_path: Path) -> None:
    places = StorePaths(tmp_path)
    paths = SearchPaths(places.storage, "mine")
    found = (places.database, places.artifact_root, paths.journal, paths.specification)
    found += (paths.forwarded, paths.predictions, paths.report, paths.lock, paths.ray)
    assert [str(file.relative_to(tmp_path)) for file in found] == [
        "mlruns/mlflow.db",
        "mlruns/artifacts",
        "mlruns/searches/mine/journal.jsonl",
        "mlruns/searches/mine/search.json",
        "mlruns/searches/mine/forwarded.json",
        "mlruns/searches/mine/predictions",
        "mlruns/searches/mine/report",
        "mlruns/searches/mine/journal.lock",
        "mlruns/searches/mine/ray",
    ]
    assert lock_of(paths.journal) == paths.lock


def test_files_of_a_copy_keep_their_names(tmp_path: Path) -> None:
    paths = SearchPaths(tmp_path, "mine")
    for folder in (paths.predictions, paths.checkpoints):
        folder.mkdir(parents=True)
    (paths.predictions / "a.npz").touch()
    (paths.checkpoints / "a.safetensors").touch()
    paths.specification.touch()
    assert set(contents.local_files(paths)) == {
        "search.json",
        "predictions/a.npz",
        "checkpoints/a.safetensors",
    }
    assert contents.part_name(262_144) == "journal/000000262144.jsonl"
    # Where a part ends decides what a later version takes for copied.
    assert (contents.PART_BYTES, contents.LEASE) == (262_144, "lease.json")


def test_records_that_wait_on_another_disk_keep_their_files_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = encode(Decision(what="answer", value=1, time=5.0))
    waiting = tmp_path / f"elsa-tune-mine-{'0' * 16}.jsonl"
    waiting.write_text(f"{line}\n")
    waiting.chmod(0o600)
    assert [encode(one) for one in Overflow("mine", "0" * 32).after(0.0)] == [line]


def test_a_report_and_an_exported_folder_keep_their_names(tmp_path: Path) -> None:
    rows = falling_curve()
    written = report_folder.write_report(answers_of(rows), rows, tmp_path / "report")
    assert not lost(
        "index.html curve.csv answers.csv answers.json trials.csv figures/freeze_curve.svg",
        {str(file.relative_to(tmp_path / "report")) for file in written},
    )
    assert exported_model.ABOUT == "elsa-tune.json"
    assert (ABOUT, PREFIX) == ("bundle.json", "prefix.safetensors")
    assert BRANCHES == "branches"


def test_kept_predictions_are_read_by_the_names_in_their_file(tmp_path: Path) -> None:
    from elsa_tune.tracking.rows import KeptPredictions

    file = tmp_path / "measure-N0-lr2e-05-s1.npz"
    np.savez_compressed(
        file, predictions=np.int8([0, 1]), labels=np.int8([0, 0]), classes=np.int64(2)
    )
    kept = KeptPredictions()(row(0, 0.5, predictions=str(file)))
    assert kept is not None
    assert (kept.predictions.tolist(), kept.labels.tolist(), kept.classes) == ([0, 1], [0, 0], 2)


def test_caches_and_variables_keep_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert TRACKING_VARIABLE == "MLFLOW_TRACKING_URI"
    monkeypatch.setenv("ELSA_TUNE_CACHE", str(tmp_path))
    monkeypatch.setenv("ELSA_TUNE_PREFIX_CACHE_GB", "1.5")
    assert files.cache_dir() == tmp_path
    assert prefix_store.budget_bytes() == 1_500_000_000
    assert prefix_store.PrefixStore().folder == tmp_path / "prefix"
    # An entry of an earlier version: its facts, then its rows.
    (tmp_path / "prefix").mkdir()
    facts = json.dumps({"what": "minilm, N=3", "crc32": 0}).encode()
    (tmp_path / "prefix" / "key").write_bytes(facts.ljust(4096))
    [entry] = prefix_store.PrefixStore().entries()
    assert (entry.key, entry.what) == ("key", "minilm, N=3")
