"""`elsa-tune ui`: a real MLflow server on the recorded store, ended by a signal."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import psutil
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.expected_conditions import presence_of_element_located
from selenium.webdriver.support.ui import WebDriverWait

from elsa_tune.tracking.mlflow.store import MlflowStore
from elsa_tune.tracking.paths import SearchPaths
from elsa_tune.tracking.places import StorePaths
from tests.browsing import browsing, narrow, needs_chromium
from tests.integration.conftest import free_port, wait_for_http
from tests.recorded_search import answered, record, whole_search

pytestmark = pytest.mark.thorough

COLUMNS = ("k", "kept", "certified", "rate")
SHOWN = ("4 of 6", "99.8 %", "yes, raw", "1e-4")


@needs_chromium
@pytest.mark.timeout(600)
def test_the_page_that_it_names_shows_the_answer_without_a_click(
    places: StorePaths, store: MlflowStore, tmp_path: Path
) -> None:
    record(SearchPaths(places.storage, "first"), answered("first", 4, 0.998), store)
    port = free_port()
    command = [sys.executable, "-m", "elsa_tune", "ui", "--port", str(port)]
    with (places.root / "log").open("w+") as log:
        interface = subprocess.Popen(
            command, cwd=places.working_directory, stderr=log, start_new_session=True
        )
        try:
            wait_for_http(f"http://127.0.0.1:{port}/health", interface)  # type: ignore[arg-type]
            log.seek(0)
            said = log.read().split("the runs of search 'first': ")[1].split()[0]
            with browsing(tmp_path / "profile") as browser:
                narrow(browser, 1400)
                browser.get(said)
                for text in (*COLUMNS, *SHOWN, "4 of 6, 99.8 %: first"):
                    shown = f"//*[contains(@class, 'ag-root')]//*[normalize-space(text())='{text}']"
                    one = (By.XPATH, shown)
                    there = WebDriverWait(browser, 90).until(presence_of_element_located(one))
                    # In the window, not beyond its edge.
                    assert 0 < there.rect["x"] + there.rect["width"] <= 1400
        finally:
            interface.send_signal(signal.SIGINT)
            interface.wait(60)


@pytest.mark.timeout(600)
def test_it_serves_the_store_and_leaves_nothing_behind(
    places: StorePaths, store: MlflowStore, root: Path
) -> None:
    record(SearchPaths(places.storage, "first"), whole_search("first", 1), store)
    port = free_port()
    program = (
        f"import sys; sys.path.insert(0, {str(root)!r}); from elsa_tune.cli.app import main; main()"
    )
    with (places.root / "log").open("w+") as log:
        interface = subprocess.Popen(
            [sys.executable, "-c", program, "ui", "--port", str(port)],
            cwd=places.working_directory,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        address = f"http://127.0.0.1:{port}"
        wait_for_http(f"{address}/health", interface)  # type: ignore[arg-type]
        page = f"{address}/api/2.0/mlflow/experiments/get-by-name?experiment_name=elsa-tune/rte"
        with urllib.request.urlopen(page, timeout=200) as answer:
            assert places.artifact_root.as_uri() in answer.read().decode()
        started = psutil.Process(interface.pid).children(recursive=True)
        assert started
        interface.send_signal(signal.SIGINT)
        out, _ = interface.communicate(timeout=200)
        assert interface.returncode == 0
        assert out == ""
        log.seek(0)
        words = log.read()
        assert f"is starting on {address}" in words
        assert f"the runs of search 'first': {address}/#/experiments/" in words
    _, alive = psutil.wait_procs(started, timeout=200)
    assert not alive
