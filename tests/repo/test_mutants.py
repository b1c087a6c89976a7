"""The mutants' list of what is tested by what names files that are there."""

from __future__ import annotations

from pathlib import Path

from tools import mutants


def test_every_file_under_test_and_every_test_of_it_is_there(root: Path) -> None:
    paths = [file.relative_to(root).as_posix() for file in mutants.files()]
    assert len(paths) > 20
    missing = [
        test for path in paths for test in mutants.tests_of(path) if not (root / test).is_file()
    ]
    assert not missing


def test_whoever_plans_a_search_is_named_with_tests_of_its_own(root: Path) -> None:
    planning = (root / "elsa_tune" / "searching" / "planning").glob("*.py")
    written = [file.relative_to(root).as_posix() for file in planning if file.stat().st_size]
    assert len(written) > 5
    assert not set(written) - set(mutants.TESTED)


def test_named_files_are_among_them(root: Path) -> None:
    [folder] = [name for name in mutants.TESTED if name.endswith("wording")]
    chosen = mutants.files([str(root / folder)])
    assert chosen and set(chosen) < set(mutants.files())
