"""A report opened in a real browser: it is read, clicked, narrowed and darkened."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.wait import WebDriverWait

from elsa_tune.cli.app import app
from elsa_tune.report.folder import write_report
from tests.unit.report_examples import NASTY, answers_of, searched

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
    rows, histories = searched()
    more, others = searched("second", task=NASTY)
    folder = tmp_path_factory.mktemp("report")
    every = rows + more
    return write_report(answers_of(every), every, {**histories, **others}, folder)[0]


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


def drawn(browser: Browser, name: str = "freeze_curve-0") -> WebElement:
    """A figure, scrolled to and drawn."""
    plot = browser.find_element(By.ID, name)
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
    wait(browser, lambda: plot.find_elements(By.CSS_SELECTOR, ".main-svg .trace, .main-svg .hm"))
    return plot


def wait(browser: Browser, is_so: Any) -> Any:
    return WebDriverWait(browser, 30, poll_frequency=0.05).until(lambda _: is_so())


def told_by_last_point(browser: Browser, figure: str) -> str:
    """What appears when the mouse is over the last point of a figure's last line."""
    plot = drawn(browser, figure)
    *_, line = plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace")
    *_, last = line.find_elements(By.CSS_SELECTOR, ".point")
    ActionChains(browser).move_to_element(last).perform()
    wait(browser, lambda: plot.find_elements(By.CSS_SELECTOR, ".hoverlayer .hovertext"))
    return plot.find_element(By.CSS_SELECTOR, ".hoverlayer .hovertext").text


def column(table: WebElement, name: str) -> tuple[WebElement, list[str]]:
    """A column's head and the texts below it."""
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    number = [head.text for head in heads].index(name)
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    return heads[number], [
        row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in rows
    ]


def test_a_table_is_sorted_by_a_click_and_by_a_key(page: Browser) -> None:
    table = page.find_element(By.CSS_SELECTOR, ".curves table")
    head, before = column(table, "kept")
    assert before == ["100.0 %", "97.8 %", "92.2 %", "84.4 %", "66.7 %"]
    button = head.find_element(By.TAG_NAME, "button")
    button.click()
    head, rising = column(table, "kept")
    assert rising == before[::-1] and head.get_attribute("aria-sort") == "ascending"
    button.send_keys(Keys.ENTER)
    head, falling = column(table, "kept")
    assert falling == before and head.get_attribute("aria-sort") == "descending"
    other, _ = column(table, "seeds")
    other.find_element(By.TAG_NAME, "button").click()
    assert column(table, "kept")[0].get_attribute("aria-sort") == "none"


def test_what_is_not_known_stands_last_either_way(page: Browser) -> None:
    table = page.find_element(By.CSS_SELECTOR, ".table.tall table")
    button = column(table, "trial")[0].find_element(By.TAG_NAME, "button")
    for _ in range(2):
        button.click()
        _, trials = column(table, "trial")
        assert trials[-1] == "" and trials[0].startswith("explore-N")


def test_a_legend_entry_hides_and_shows_its_series_in_every_panel(page: Browser) -> None:
    plots = [drawn(page, f"freeze_curve-{number}") for number in (0, 1)]
    shown = [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace")) for plot in plots]
    button = page.find_element(By.CSS_SELECTOR, '.legend [data-series="single seeds"]')
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    for plot, count in zip(plots, shown, strict=True):
        left = plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace")
        assert len(left) == count - 1
    button.send_keys(Keys.SPACE)
    assert button.get_attribute("aria-pressed") == "true"
    again = [len(plot.find_elements(By.CSS_SELECTOR, ".scatterlayer .trace")) for plot in plots]
    assert again == shown


def test_a_point_tells_its_values(page: Browser) -> None:
    text = told_by_last_point(page, "relative_change-0")
    assert "N = 6, k = 0 of 6" in text and "keeps 66.7 %" in text and "change -33.3 %" in text


def test_every_figure_is_drawn_without_a_word_of_complaint(page: Browser) -> None:
    plots = page.find_elements(By.CSS_SELECTOR, ".plot")
    assert len(plots) == 2 + 2 + 2 + 2 + 2 + 5 + 5
    # Those of several searches are folded away; what opens them is the keyboard's too.
    for summary in page.find_elements(By.CSS_SELECTOR, "summary"):
        summary.send_keys(Keys.ENTER)
    for plot in plots:
        drawn(page, plot.get_attribute("id") or "")
    assert page.get_log("browser") == []
    assert NASTY in page.find_element(By.TAG_NAME, "main").text


def test_a_reproduced_study_is_read_and_clicked(browser: Browser, tmp_path: Path) -> None:
    """The paper's protocol on MiniLM and SST-2, from the trials that were recorded."""
    out = tmp_path / "out"
    report = ["report", "--from", str(STUDY), "--task", "sst2", "--out", str(out)]
    app(report, standalone_mode=False)
    narrow(browser, 1600)
    browser.get((out / "index.html").as_uri())
    story = browser.find_element(By.CSS_SELECTOR, ".story").text
    assert "2 of 6 layers at 5e-05 keep 97.8 % of the full model's accuracy (78.8 of 80.5)" in story
    table = browser.find_element(By.CSS_SELECTOR, ".curves table")
    head, kept = column(table, "kept")
    assert kept == ["100.0 %", "98.0 %", "97.8 %", "85.5 %", "63.5 %"]
    head.find_element(By.TAG_NAME, "button").click()
    assert column(table, "kept")[1] == kept[::-1]
    trials = browser.find_element(By.CSS_SELECTOR, ".table.tall table")
    column(trials, "learning rate")[0].find_element(By.TAG_NAME, "button").click()
    # The line search tried five rates; every other trial measured the best of them.
    assert column(trials, "learning rate")[1] == ["1e-05", "2e-05", "3e-05", "4e-05"] + 26 * [
        "5e-05"
    ]
    assert "keeps 63.5 %" in told_by_last_point(browser, "relative_change-0")


def test_nothing_but_the_file_is_asked_for(page: Browser, report: Path) -> None:
    drawn(page)
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


@pytest.mark.parametrize("width", [400, 1600])
def test_the_page_is_no_wider_than_its_window(page: Browser, width: int) -> None:
    narrow(page, width)
    page.refresh()
    drawn(page)
    root = "document.documentElement"
    needed, there = page.execute_script(f"return [{root}.scrollWidth, {root}.clientWidth]")
    assert needed <= there <= width
    plots = page.find_elements(By.CSS_SELECTOR, ".plot")
    assert all(plot.size["width"] > 250 for plot in plots if plot.is_displayed())
    # The widest table scrolls in its own box.
    box = page.find_element(By.CSS_SELECTOR, ".table.tall")
    inside, outside = page.execute_script(
        "return [arguments[0].scrollWidth, arguments[0].clientWidth]", box
    )
    assert outside <= width and inside >= outside


def test_dark_is_dark_and_paper_is_light(page: Browser) -> None:
    plot = drawn(page)

    def colours() -> tuple[str, str]:
        ground = page.execute_script("return getComputedStyle(document.body).backgroundColor")
        figure = plot.find_element(By.CSS_SELECTOR, ".main-svg").value_of_css_property("background")
        return str(ground), str(figure).split(" none")[0]

    light = colours()
    assert light == ("rgb(255, 255, 255)",) * 2
    scheme(page, "dark")
    dark = colours()
    assert dark == ("rgb(20, 23, 28)",) * 2
    page.execute_script("window.dispatchEvent(new Event('beforeprint'))")
    assert colours() == light
    page.execute_script("window.dispatchEvent(new Event('afterprint'))")
    assert colours() == dark


def test_without_scripts_the_story_and_the_tables_are_there(page: Browser, report: Path) -> None:
    page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        page.get(report.as_uri())
        text = page.find_element(By.TAG_NAME, "main").text
        assert "2 of 2 questions have an answer" in text
        assert "need JavaScript" in text and "92.2 %" in text
    finally:
        page.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
