"""What MLflow's pages and a report show of recorded searches, for the documentation.

    python bench/screenshots.py FOLDER          # a folder with mlruns/, in which searches have run

A real MLflow server and Chromium (chromedriver beside it). Nothing on the pages is set up by hand:
each picture is an address and what MLflow shows there by itself; and the report of the search that
began last, in windows of three widths.
"""

from __future__ import annotations

import argparse
import io
import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

from mlflow import MlflowClient
from mlflow.entities import Run
from PIL import Image
from selenium import webdriver

from elsa_tune.tracking.mlflow.names import SEARCH_TAG
from elsa_tune.tracking.mlflow.pages import page_of

FIGURES = Path(__file__).resolve().parents[1] / "docs" / "figures"
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")
SIZE = (1600, 940)
# Of the report's windows: a phone, a tablet, a desk. Their pictures begin at the page's top.
REPORT_SIZES = ((400, 1500), (800, 1500), (1400, 1300))
TYPE = "?workflowType=machine_learning"  # else MLflow shows its menu for language models
COLOURS = 256  # enough for a page, in files a third as large
# MLflow opens a chat beside every page; what closes it is the last button of its title.
CLOSE_ASSISTANT = """
const found = document.elementFromPoint(window.innerWidth - 36, 36);
found?.closest("button")?.click();
"""
PATIENCE = 60.0  # seconds for the server's start
DRAWN = 12.0  # seconds for a page to ask for its runs and draw them


def pages(store: str) -> dict[str, str]:
    """Return the fragment of each picture's address."""
    client = MlflowClient(store)
    experiments = [one for one in client.search_experiments() if one.name.startswith("elsa-tune/")]
    ids = [one.experiment_id for one in experiments]
    runs = client.search_runs(ids, max_results=5000)
    parents = [run for run in runs if "mlflow.parentRunId" not in run.data.tags]
    newest = parents[0]
    here = newest.info.experiment_id
    children = [
        run
        for run in runs
        if run.data.tags.get("mlflow.parentRunId") == newest.info.run_id
        and run.data.tags.get(SEARCH_TAG)
        and run.data.params.get("phase") == "measure"
    ]
    curves = [run for run in parents if run.info.experiment_id == here][:2]

    def of(chosen: list[Run]) -> str:
        named = quote(json.dumps([run.info.run_id for run in chosen]))
        return f"runs={named}&experiments={quote(json.dumps([here]))}"

    kept = f"metric={quote(json.dumps('kept'))}&plot_metric_keys={quote(json.dumps(['kept']))}"
    return {
        "mlflow_runs": page_of("", here).partition("#/")[2],
        "mlflow_search": f"experiments/{here}/runs/{newest.info.run_id}{TYPE}",
        "mlflow_freeze_curves": f"metric?{of(curves)}&{kept}&x_axis=step",
        "mlflow_trials": f"compare-runs?{of([children[0], children[-1]])}",
    }


def main() -> None:
    """One PNG a page, into docs/figures or the folder named by --out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "elsa_tune", "ui", "--port", str(port)]
    server = subprocess.Popen(command, cwd=options.folder)
    chromium = webdriver.ChromeOptions()
    chromium.binary_location = shutil.which("chromium") or ""
    for flag in FLAGS:
        chromium.add_argument(flag)
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    browser = webdriver.Chrome(options=chromium, service=service)
    try:
        wait_for(f"{address}/health")
        browser.set_window_size(*SIZE)
        for name, fragment in pages(address).items():
            browser.get("about:blank")
            browser.get(f"{address}/#/{fragment}")
            time.sleep(DRAWN)
            browser.execute_script(CLOSE_ASSISTANT)
            time.sleep(2.0)
            save(browser, options.out / f"{name}.png")
        pages_of_searches = (options.folder / "mlruns" / "searches").glob("*/report/index.html")
        report = max(pages_of_searches, key=lambda page: page.stat().st_mtime).absolute()
        for width, height in REPORT_SIZES:
            window = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": True}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", window)
            browser.get(report.as_uri())
            save(browser, options.out / f"report_{width}.png")
    finally:
        browser.quit()
        server.terminate()
        server.wait()


def save(browser: webdriver.Chrome, file: Path) -> None:
    """Save what its window shows, in few colours."""
    shown = Image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")
    shown.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
    print(file, flush=True)


def wait_for(address: str) -> None:
    """Until something answers there."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


if __name__ == "__main__":
    main()
