"""Search spaces and task files as hands and scripts spoil them.

Hundreds of them, each answered by a plan or by one sentence, soon, and never by a traceback.
"""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest

from elsa_tune.analysis import power
from elsa_tune.errors import DataError, SpaceError
from elsa_tune.specs.space import load_space
from elsa_tune.tasks.task_file import read_task_file
from tests.conftest import Outcome, Run
from tests.searching import make_bench

SPACE = """\
# As a user would write it.
depths: [0, embeddings, 1, 8/12]
learning_rate: {low: 1e-5, high: 5e-5, step: 1e-5}
tries: 2
asha: {grace: 0.5, reduction_factor: 2}
seeds: 3
epochs: 3
batch_size: 16
max_length: 32
selection: holdout
holdout: 0.1
linear_probe: no
"""
TASK = """\
name: mood
files: {train: [train.csv], evaluation: dev.csv}
format: csv
text: [text]
label: label
classes: [bad, good]
regression: false
metric: accuracy
"""
# What a value or a whole field becomes; a field's name too.
VALUES = (
    *("", "null", "~", "''", "nan", ".nan", ".inf", "-.inf", "-1", "0", "0.0", "1e400", "1e-400"),
    *("1:30", "1:30:00.5", "2020-01-01", "2020-13-45 99:99", "yes", "off", "True", "010", "0x1F"),
    *("9" * 400, "9" * 5000, "0x" + "f" * 5000, ":".join(["59"] * 400), "1e-9", "1" * 20),
    *("[]", "{}", "[[]]", "[{}]", "{a: 1}", "{low: 1}", "[1, [2, [3]]]", "{1: 2}", "{[1]: 2}"),
    *("!!int ''", "!!int x", "!!float x", "!!binary x", "!!timestamp x", "!!set {a}", "!!omap [a]"),
    *("!!python/object:os.system x", "!x y", "!!bool maybe", "!!null x", "!!str", "!!map []"),
    *('"a\\0b"', '"\\x1b[2J"', '"\\ud800"', "\x00", "\x1b", "\ufeff", "é", "🎈", "\u202e", "\t"),
    *(
        "&a [*a]",
        "*b",
        "&a",
        "<<: {a: 1}",
        "? a",
        "|",
        ">",
        "- ",
        "---",
        "...",
        "%YAML 9",
        "@",
        "`",
    ),
    *("{low: 1e-5, high: 1e-1, step: 1e-9}", "{low: 1e-300, high: 1e-299, step: 1e-320}"),
    *("{low: 5e-5, high: 1e-5}", "[1e-5, 1e-5]", "[0, 0, 0]", "[1/0]", "[-1/2]", "[1/3/4]"),
    *("half", "all", "from_full_model", "../../x", "~root/x", "/dev/zero", "/proc/self/mem", "."),
    *(f"[{', '.join(map(str, range(20_000)))}]", "[" * 2000, "{a: " * 500, "x" * 20_000),
    *("1_000", "0b1", "0o7", "1.", ".5", "+1", "1e3", "[a, b]", "[1, 2]", "'1'", "=", "<<"),
)


def mutated(text: str, draw: random.Random) -> str:
    """Return the text with one to three things changed."""
    for _ in range(draw.randint(1, 3)):
        text = draw.choice(MUTATIONS)(text, draw)
    return text


def new_value(text: str, draw: random.Random) -> str:
    lines = text.splitlines()
    place = draw.randrange(len(lines)) if lines else 0
    lines[place : place + 1] = [
        f"{line.partition(':')[0]}: {draw.choice(VALUES)}" for line in lines[place : place + 1]
    ]
    return "\n".join(lines) + "\n"


def new_name(text: str, draw: random.Random) -> str:
    lines = text.splitlines()
    place = draw.randrange(len(lines)) if lines else 0
    lines[place : place + 1] = [
        f"{draw.choice(VALUES)}:{line.partition(':')[2]}" for line in lines[place : place + 1]
    ]
    return "\n".join(lines) + "\n"


def new_line(text: str, draw: random.Random) -> str:
    lines = text.splitlines()
    again = draw.choice([*lines, ": 3", "? \n: 3", "a", "- a", f"{draw.choice(VALUES)}: 1"])
    lines.insert(draw.randint(0, len(lines)), again)
    return "\n".join(lines) + "\n"


def new_character(text: str, draw: random.Random) -> str:
    place = draw.randint(0, len(text))
    character = draw.choice(string.punctuation + "\t\r\n \0\x1b\x85\u2028\ufeff")
    return text[:place] + character + text[place + draw.randint(0, 1) :]


def cut(text: str, draw: random.Random) -> str:
    start, end = sorted(draw.randint(0, len(text)) for _ in range(2))
    return text[:start] + text[end:] if draw.random() < 0.7 else text[:start]


def nested(text: str, draw: random.Random) -> str:
    indented = "".join(f"  {line}\n" for line in text.splitlines())
    return draw.choice(["space:\n", "- \n", "? \n", "training:\n"]) + indented


MUTATIONS = (new_value, new_value, new_value, new_name, new_line, new_character, cut, nested)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory with a model, a task and a space."""
    make_bench(tmp_path, train=24, evaluation=8)
    monkeypatch.chdir(tmp_path)
    # What a plan says that it can certify takes most of its time; here it need not be exact.
    monkeypatch.setattr(power, "_POINTS", 10)
    (tmp_path / "space.yaml").write_text(SPACE)
    return tmp_path


def check(outcome: Outcome, text: str) -> None:
    """Check that a command ended by a result or by one bearable sentence."""
    assert outcome.status in (0, 2), (text, outcome)
    if outcome.status == 2:
        refusals = [line for line in outcome.err.splitlines() if line.startswith("elsa-tune: ")]
        assert len(refusals) == 1 and outcome.err.endswith(f"{refusals[0]}\n"), (text, outcome)
        assert 20 < len(refusals[0]) < 3000, (text, outcome)
        assert not outcome.out, (text, outcome)


DRY_RUN = (
    "search",
    "--model",
    "model",
    "--task",
    "task.yaml",
    "--space",
    "space.yaml",
    "--dry-run",
)


def test_what_they_were_made_from_is_right(folder: Path, run: Run) -> None:
    (folder / "task.yaml").write_text(TASK)
    assert run(*DRY_RUN).status == 0
    assert run("tasks", "task.yaml").status == 0


# A hundred of each quickly, as many more thoroughly.
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 3))]


@pytest.mark.parametrize("seed", SEEDS)
def test_spoilt_spaces_give_a_plan_or_a_sentence(folder: Path, run: Run, seed: int) -> None:
    draw = random.Random(seed)
    statuses = set()
    for _ in range(50):
        text = mutated(SPACE, draw)
        (folder / "space.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
        outcome = run(*DRY_RUN)
        check(outcome, text)
        statuses.add(outcome.status)
    assert 2 in statuses  # or the mutations would show nothing


@pytest.mark.parametrize("seed", SEEDS)
def test_spoilt_task_files_give_a_task_or_a_sentence(folder: Path, run: Run, seed: int) -> None:
    draw = random.Random(seed)
    statuses = set()
    for _ in range(50):
        text = mutated(TASK, draw)
        (folder / "task.yaml").write_text(text, encoding="utf-8", errors="surrogatepass")
        outcome = run("tasks", "task.yaml")
        check(outcome, text)
        statuses.add(outcome.status)
    assert 2 in statuses


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("learning_rate: {low: 1e-5, high: 1e-1, step: 1e-9}", "more than 1,000 rates"),
        ("learning_rate: {low: 1e-5, high: 1.01e-5, step: 1e-10}", "more than 1,000 rates"),
        ("learning_rate: {low: 1e-5, high: 1e-1, step: 5e-324}", "more than 1,000 rates"),
        (f"depths: [{', '.join(['1'] * 2000)}]", "must be at most 1,000 depths, not 2,000"),
        (f"learning_rate: [{', '.join(['1e-5'] * 2000)}]", "must be at most 1,000 rates"),
        ("tries: 999999999999", "field 'tries' must be 1,000 or less"),
        ("seeds: 999999999999", "field 'seeds' must be 1,000 or less"),
        ("epochs: 999999999999", "field 'epochs' must be 1,000 or less"),
        ("epochs: 1:30", "field 'epochs' must be a whole number, not '1:30'"),
        ("target: 1:30.5", "field 'target' must be a number, not '1:30.5'"),
        ("revision: 2020-01-01\nseed: x", "field 'seed' must be a whole number, not 'x'"),
        (f"seed: {'9' * 5000}", "field 'seed' must be a whole number, not '9999"),
        (f"seed: 0x{'f' * 5000}", "field 'seed' must be a whole number, not '0xff"),
        (f"learning_rate: {'9' * 400}", "must be a rate above 0 and up to 1"),
        ("'': 3", "line 1: a field has no name"),
        ("".join(f"field{n}: 1\n" for n in range(9000)), "and 8,990 more"),
    ],
)
def test_more_than_anybody_can_mean_is_refused_in_a_sentence(
    text: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "space.yaml"
    file.write_text(text)
    with pytest.raises(SpaceError) as refused:
        load_space(file)
    assert reason in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("field", ["files", "text", "label", "name"])
def test_a_nul_in_a_task_file_is_named(field: str, tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    lines = [line for line in TASK.splitlines() if not line.startswith(field)]
    file.write_text("\n".join([*lines, f'{field}: "a\\0b"']))
    with pytest.raises(DataError, match=rf"field '{field}.* must be .*, not 'a\\x00b'"):
        read_task_file(file)
