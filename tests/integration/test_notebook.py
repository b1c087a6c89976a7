"""The guide's notebook, run as Jupyter runs it: from a DataFrame to a model that is loaded."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = [pytest.mark.thorough, pytest.mark.timeout(600)]


def test_the_notebook_runs_to_its_end(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(root))
    notebook = nbformat.read(root / "docs/guides/notebook.ipynb", as_version=4)
    (search,) = (cell for cell in notebook.cells if "elsa_tune.search(" in cell.source)
    # One trial at a time, as in tests/searching.py.
    search.source = search.source.replace("seeds=2,", "seeds=2, cpus_per_trial=1.5,")
    NotebookClient(notebook, timeout=550, resources={"metadata": {"path": tmp_path}}).execute()
    cells = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert not [output for cell in cells for output in cell if output.get("name") == "stdout"]
    _, searched, table, classified, predicted = cells
    # One live table, drawn again in its place; Ray would have cleared it with its own.
    # A slow machine has lines above it: what is waited for.
    shown = [
        output.data["text/html"] for output in searched if output.output_type == "display_data"
    ]
    boards = [html for html in shown if "/6 trials: " in html]
    assert len(boards) == 1 and "6/6 trials: 6 done" in boards[0], shown
    answer = searched[-1].data["text/html"]
    assert "Fine-tune" in answer and "<svg" in answer
    assert "quality" in table[-1].data["text/html"]
    labels = classified[-1].data["text/plain"]
    assert labels.count("'label': ") == 2 and "'score': " in labels
    assert "confidence" in predicted[-1].data["text/html"]
