"""What a type checker tells the author of a script that uses the package."""

from __future__ import annotations

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs" / "guides" / "python.md"
# A line of the guide: a name, a call, and what comes out.
_LINE = re.compile(r"^(\w+) = (elsa_tune\..*?)  # ([\w.]+)", re.MULTILINE)
HEAVY = (
    *("torch", "transformers", "ray", "mlflow", "optuna", "datasets", "matplotlib", "scipy"),
    *("huggingface_hub", "IPython", "PIL", "rich", "sqlalchemy", "typer"),
)
WRONG = {
    'elsa_tune.serach("minilm", "rte")': "attr-defined",
    'elsa_tune.search("minilm", "rte", sedes=3)': "call-arg",
    'elsa_tune.search("minilm", "rte", epochs="six")': "arg-type",
    'elsa_tune.search("minilm", "rte", until="sure")': "arg-type",
    'elsa_tune.search("minilm")': "call-arg",
    'elsa_tune.answer("found", target="0.9")': "arg-type",
    'elsa_tune.answer("found").operating_point': "attr-defined",
    'elsa_tune.export("found")': "call-arg",
    "elsa_tune.freeze(None, frozen_layers=2.5)": "arg-type",
}

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return what mypy says of each line of a user's script."""
    lines = _LINE.findall(GUIDE.read_text(encoding="utf-8"))
    script = ["import elsa_tune", ""]
    script += [f"{name} = {call}" for name, call, _ in lines]
    script += [f"reveal_type({name})" for name, _, _ in lines]
    script += WRONG
    file = tmp_path_factory.mktemp("user") / "script.py"
    file.write_text("\n".join(script) + "\n")
    # As without them, and in a tenth of the time: no signature of ours names what is theirs.
    skipped = "\n".join(f"[mypy-{name}.*]\nfollow_imports = skip" for name in HEAVY)
    file.with_name("mypy.ini").write_text(f"[mypy]\nfollow_imports = silent\n{skipped}\n")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=mypy.ini", str(file)]
    command += ["--ignore-missing-imports", "--show-error-codes"]
    checked = subprocess.run(
        [*command, f"--cache-dir={ROOT / '.mypy_cache' / 'user'}"],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(ROOT)},
        cwd=file.parent,
    )
    by_line = [""] * len(script)
    for number, text in re.findall(r"^script\.py:(\d+): (.*)$", checked.stdout, re.MULTILINE):
        by_line[int(number) - 1] += text
    assert any(by_line), checked.stdout + checked.stderr
    return by_line


def test_what_comes_out_is_what_the_guide_says(told: list[str]) -> None:
    lines = _LINE.findall(GUIDE.read_text(encoding="utf-8"))
    assert [name for name, _, _ in lines][:3] == ["found", "again", "answers"]
    first = 2 + len(lines)
    for text, (_, _, kind) in zip(told[first:], lines, strict=False):
        revealed = re.search(r'Revealed type is "(.*)"', text)
        assert revealed is not None
        module, _, name = kind.rpartition(".")
        value = getattr(importlib.import_module(module), name)
        assert revealed[1] == f"{value.__module__}.{name}"
    # A line of the guide has no error.
    assert not any(told[2:first])


def test_what_is_mistyped_is_an_error(told: list[str]) -> None:
    errors = dict(zip(WRONG, told[-len(WRONG) :], strict=True))
    assert {call: code for call, code in WRONG.items() if f"[{code}]" not in errors[call]} == {}
