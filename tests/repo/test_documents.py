"""What is written down agrees: links, versions, docstrings; and it names nobody's machine."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

import elsa_tune

ROOT = Path(__file__).resolve().parents[2]

# Where a text names the machine or the index it was written on. Put together from halves, so that
# this file does not find itself.
MACHINE = re.compile(
    "|".join(
        (
            r"(?<![\w.~-])/wor" + r"k/",
            r"/tmp/ve" + r"nv",
            r"/opt/py" + r"pi",
            r"(?<![\w.])/ro" + r"ot/",
            r"py" + r"pi\.(?:org|python)|pythonhos" + r"ted\.org|registry\.npm" + r"js",
            r"--(?:extra-)?index" + r"-url|--trusted" + r"-host",
        )
    )
)


def committed_files() -> list[Path]:
    """Every file that is in git, or would be with the next commit."""
    try:
        listing = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT,
            capture_output=True,
            check=True,
            timeout=200,
        ).stdout.decode()
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("needs git and a checkout: this copy has no history to ask which files count")
    paths = [ROOT / name for name in listing.split("\0") if name]
    return [path for path in paths if path.is_file()]


def test_nothing_names_the_machine_it_was_written_on() -> None:
    found = []
    for path in committed_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue  # an image
        for number, line in enumerate(lines, 1):
            if match := MACHINE.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {match.group()}")
    assert not found


@pytest.mark.parametrize(
    ("text", "is_found"),
    [
        ("see /wor" + "k/main/x", True),
        ("pip install --index" + "-url https://example.org", True),
        ("the folder docs/work/notes", False),
        ("a framework/bench", False),
    ],
)
def test_the_machine_pattern_itself(text: str, is_found: bool) -> None:
    assert bool(MACHINE.search(text)) is is_found


def anchors(document: str) -> set[str]:
    """Return the anchors GitHub gives the headings of a Markdown text."""
    found: set[str] = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*$", without_code(document), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        found.add(re.sub(r"[^\w\- ]", "", plain).replace(" ", "-"))
    return found


def without_code(document: str) -> str:
    """Return a Markdown text without its fenced blocks.

    Brackets and hashes mean other things there.
    """
    return re.sub(r"^```.*?^```", "", document, flags=re.MULTILINE | re.DOTALL)


def dead_links(page: Path, document: str) -> list[str]:
    """Return the relative links of a page that lead to no file, or to no heading."""
    dead = []
    links = re.findall(r"\]\(<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\)", without_code(document))
    # A link that a line's end has cut in two leads nowhere.
    links += re.findall(r"\]\(([^)\"]*\s[^)\"]*)\)", without_code(document))
    links += re.findall(r"(?:src|href)=\"([^\"]+)\"", document)
    for link in links:
        if re.match(r"[a-z][a-z+.-]*:", link):
            continue  # another site; no test needs the network
        place, _, anchor = unquote(link).partition("#")
        target = (page.parent / place) if place else page
        is_page = target.exists() and target.suffix == ".md"
        if not target.exists() or (
            is_page and anchor and anchor not in anchors(target.read_text())
        ):
            dead.append(link)
    return dead


def test_no_dead_links() -> None:
    pages = [path for path in committed_files() if path.suffix == ".md"]
    assert {"CHANGELOG.md", "CONTRIBUTING.md", "README.md"} <= {page.name for page in pages}
    dead = {
        str(page.relative_to(ROOT)): links
        for page in pages
        if (links := dead_links(page, page.read_text()))
    }
    assert not dead


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# One `two`\n[a](#one-two) [b](#three) [c](page.md) [d](gone.md) [e](https://x)"
        " [f](in-\n two.md)"
    )
    assert dead_links(page, page.read_text()) == ["#three", "gone.md", "in-\n two.md"]


def test_the_version_is_one() -> None:
    """pyproject.toml, the package and the newest entry of the changelog agree."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == elsa_tune.__version__
    entries = re.findall(
        r"^## \[?([\w.]+)\]?(?: — \S+)?$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert next(entry for entry in entries if entry != "Unreleased") == elsa_tune.__version__


def test_every_module_says_what_it_is_for() -> None:
    """Each module here has a docstring; empty files need none."""
    silent = []
    for folder in ("elsa_tune", "tests", "tools", "bench"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            tree = ast.parse(path.read_text())
            if tree.body and not ast.get_docstring(tree):
                silent.append(str(path.relative_to(ROOT)))
    assert not silent


# No sentence of a docstring begins with these: they carry on one that nobody wrote.
IN_MID_SENTENCE = frozenset(
    ("Of", "Those", "That", "With", "Which", "Where", "In", "Within", "Until", "From", "By")
)


def badly_begun(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that begin in the middle of a sentence."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        docstring = ast.get_docstring(node)
        if not docstring:
            continue
        first_word = re.split(r"[\s,.:;]", docstring, maxsplit=1)[0]
        if first_word in IN_MID_SENTENCE or first_word[:1].islower():
            yield docstring.splitlines()[0]


def test_every_docstring_begins_as_a_sentence() -> None:
    bad = []
    for path in sorted((ROOT / "elsa_tune").rglob("*.py")):
        for line in badly_begun(path.read_text()):
            bad.append(f"{path.relative_to(ROOT)}: {line}")
    assert not bad


@pytest.mark.parametrize(
    ("docstring", "is_bad"),
    [
        ("Of every row.", True),
        ("By task, the rows.", True),
        ("That of the best trial.", True),
        ("all rows of a table.", True),
        ("Return the rows.", False),
        ("A row.", False),
        ("`of` reads it.", False),
        ("Byte order.", False),
    ],
)
def test_what_is_a_badly_begun_docstring(docstring: str, is_bad: bool) -> None:
    inner = f'class Row:\n    def read(self):\n        """{docstring}"""\n'
    assert list(badly_begun(inner)) == [docstring] * is_bad
    assert list(badly_begun(f'"""{docstring}"""')) == [docstring] * is_bad


def test_it_is_marked_as_typed() -> None:
    assert (ROOT / "elsa_tune" / "py.typed").is_file()


def test_the_guide_names_what_stays_in_the_environment() -> None:
    stays: set[str] = set()  # the command line's own is gone with its process
    for room in ("training", "tracking"):
        for path in sorted((ROOT / "elsa_tune" / room).rglob("*.py")):
            stays.update(re.findall(r'os\.environ\.setdefault\("(\w+)"', path.read_text()))
    guide = (ROOT / "docs" / "guides" / "python.md").read_text()
    assert {"TOKENIZERS_PARALLELISM", "MLFLOW_DISABLE_TELEMETRY"} <= stays
    assert not [name for name in sorted(stays) if name not in guide]
