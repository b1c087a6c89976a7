"""A report opened in a real browser: it is read, narrowed and darkened."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from elsa_tune.cli.app import app
from elsa_tune.report.page import write_report
from elsa_tune.specs.trial import Phase
from tests.unit.report_examples import NASTY, answers_of, searched
from tests.unit.result_rows import row

STUDY = Path(__file__).parents[2] / "bench" / "results" / "elsa_minilm" / "trials.csv"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="needs Chromium and its driver (Debian: chromium, chromium-driver)",
    ),
    pytest.mark.timeout(240),
]

FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)
Browser = webdriver.Chrome


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM or ""
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.add_argument("about:blank")  # a distribution may have set a page to start with
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(executable_path=DRIVER)
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report of two tasks, one with a name that would like to be markup."""
    more = row(3, 0.7, phase=Phase.EXPLORE, learning_rate=1e-4, search="first")
    every = [*searched(), more, *searched("second", task=NASTY)]
    return write_report(answers_of(every), every, tmp_path_factory.mktemp("report"))[0]


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    """The report, opened anew in a light window 1,600 pixels wide."""
    narrow(browser, 1600)
    scheme(browser, "light")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(report.as_uri())
    return browser


def narrow(browser: Browser, width: int) -> None:
    metrics = {"width": width, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def scheme(browser: Browser, name: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def column(table: WebElement, name: str) -> tuple[WebElement, list[str]]:
    """A column's head and the texts below it."""
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    number = [head.text for head in heads].index(name)
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    return heads[number], [
        row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in rows
    ]


def test_every_figure_is_drawn_without_a_word_of_complaint(page: Browser) -> None:
    figures = page.find_elements(By.CSS_SELECTOR, "figure > svg")
    # Only the first task was tried at several rates.
    assert len(figures) == 2 + 1
    assert page.get_log("browser") == []
    assert NASTY in page.find_element(By.TAG_NAME, "main").text


def test_a_reproduced_study_is_read(browser: Browser, tmp_path: Path) -> None:
    """The paper's protocol on MiniLM and SST-2, from the trials that were recorded."""
    out = tmp_path / "out"
    report = ["report", "--from", str(STUDY), "--task", "sst2", "--out", str(out)]
    app(report, standalone_mode=False)
    narrow(browser, 1600)
    browser.get((out / "index.html").as_uri())
    said = browser.find_element(By.CSS_SELECTOR, ".answer").text
    assert said.startswith("2 of 6 layers at 5e-05 keep 97.8 % of the full model's accuracy")
    table = browser.find_element(By.CSS_SELECTOR, "#curves ~ section table")
    assert column(table, "kept")[1] == ["100.0 %", "98.0 %", "97.8 %", "85.5 %", "63.5 %"]
    # The line search tried five rates of the full model.
    drawn = browser.find_elements(By.CSS_SELECTOR, "[aria-labelledby=learning_rates] svg text")
    assert {f"{rate}e-05" for rate in (1, 2, 3, 5)} <= {text.text for text in drawn}


def test_nothing_but_the_file_is_asked_for(page: Browser, report: Path) -> None:
    messages = "\n".join(str(entry["message"]) for entry in page.get_log("performance"))
    assert report.as_uri() in messages
    assert '"url":"http' not in messages
    # Even if something asked, the page's policy would refuse.
    refused = page.execute_async_script(
        "const done = arguments[0]; fetch('http://127.0.0.1:9/').then(() => done('sent'), "
        "(error) => done(String(error)))"
    )
    assert refused.startswith("TypeError")
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def boxes(browser: Browser, selector: str, side: str) -> list[float]:
    """A side of each such element, in pixels from the window's left edge."""
    script = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map((one) => one.getBoundingClientRect()[arguments[1]])"
    )
    return list(browser.execute_script(script, selector, side))


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("width", [400, 800, 1600])
def test_nothing_is_cut_at_any_width(page: Browser, width: int, tasks: int, tmp_path: Path) -> None:
    narrow(page, width)
    if tasks == 1:
        rows = searched()
        page.get(write_report(answers_of(rows), rows, tmp_path)[0].as_uri())
    root = "document.documentElement"
    needed, there = page.execute_script(f"return [{root}.scrollWidth, {root}.clientWidth]")
    assert needed <= there <= width
    assert max(boxes(page, "figure svg text, h1, p, li, dd, dt", "right")) <= there
    assert min(boxes(page, "figure svg text", "left")) >= 0
    # Signs that a phone can show and eyes can read.
    heights = page.execute_script(
        "return [...document.querySelectorAll('figure svg text:not([transform])')]"
        ".map((text) => text.getBBox().height * text.getScreenCTM().d)"
    )
    assert min(heights) > 7
    for box in page.find_elements(By.CSS_SELECTOR, ".table"):
        inside, outside = page.execute_script(
            "return [arguments[0].scrollWidth, arguments[0].clientWidth]", box
        )
        assert outside <= width and (width < 1600 or inside <= outside)
    # A table wider than a phone is scrolled in its own box; of one search the quality is in sight.
    for table in page.find_elements(By.CSS_SELECTOR, ".table") if tasks == 1 else ():
        head, _ = column(table, "quality")
        assert head.rect["x"] + head.rect["width"] <= there


def test_the_width_of_a_wide_window_is_used(page: Browser) -> None:
    rights = boxes(page, "figure svg", "right")
    assert max(rights) > 1500 and max(boxes(page, ".facts", "left")) > 700


def test_dark_is_dark_and_paper_is_light(page: Browser) -> None:
    line = page.find_element(By.CSS_SELECTOR, "[aria-labelledby=freeze_curve] path[style*='-0']")
    text = page.find_element(By.CSS_SELECTOR, "figure svg text")

    def colours() -> tuple[str, str, str]:
        ground = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        shown = (line.value_of_css_property(name) for name in ("fill", "stroke"))
        return ground, next(c for c in shown if c != "none"), text.value_of_css_property("fill")

    light = ("rgb(255, 255, 255)", "rgb(0, 114, 178)", "rgb(74, 81, 96)")
    assert colours() == light
    scheme(page, "dark")
    assert colours() == ("rgb(20, 23, 28)", "rgb(79, 168, 224)", "rgb(179, 186, 198)")
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert colours() == light
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_everything_is_there_without_scripts(page: Browser, report: Path) -> None:
    assert page.find_elements(By.TAG_NAME, "script") == []
    text = page.find_element(By.TAG_NAME, "main").text
    assert "2 of 2 questions have an answer" in text
    assert "92.2 %" in text and "frozen layers N" in text
