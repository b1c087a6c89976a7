"""A report opened in a real browser: it is read, narrowed and darkened."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement

from elsa_tune.cli.app import app
from elsa_tune.report.folder import write_report
from elsa_tune.specs.trial import Phase
from tests.browsing import Browser, browsing, narrow, needs_chromium
from tests.unit.report_examples import NASTY, answers_of, searched
from tests.unit.result_rows import row, seeds

STUDY = Path(__file__).parents[2] / "bench" / "results" / "elsa_minilm" / "trials.csv"
WIDTHS = (400, 800, 1400)
PAGES = {
    "one answer": searched(),
    "no answer": seeds(3, [0.8, 0.81]),
    "two tasks": [*searched(), *searched("second", task="cola")],
}

pytestmark = [pytest.mark.thorough, needs_chromium, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browsing(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report of two tasks, one with a name that would like to be markup."""
    more = row(3, 0.7, phase=Phase.EXPLORE, learning_rate=1e-4, search="first")
    every = [*searched(), more, *searched("second", task=NASTY)]
    return write_report(answers_of(every), every, tmp_path_factory.mktemp("report"))[0]


@pytest.fixture
def page(browser: Browser, report: Path) -> Browser:
    """Return the report, opened anew in a light window 1,600 pixels wide."""
    narrow(browser, 1600)
    scheme(browser, "light")
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(report.as_uri())
    return browser


def scheme(browser: Browser, name: str) -> None:
    features = [{"name": "prefers-color-scheme", "value": name}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def column(table: WebElement, name: str) -> tuple[WebElement, list[str]]:
    """Return a column's head and the texts below it."""
    heads = table.find_elements(By.CSS_SELECTOR, "thead th")
    number = [head.text for head in heads].index(name)
    rows = table.find_elements(By.CSS_SELECTOR, "tbody tr")
    return heads[number], [
        row.find_elements(By.CSS_SELECTOR, "th, td")[number].text for row in rows
    ]


def test_every_figure_is_drawn_without_a_word_of_complaint(page: Browser) -> None:
    figures = page.find_elements(By.CSS_SELECTOR, "figure svg")
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
    said = browser.find_element(By.CSS_SELECTOR, ".headline").text
    assert said.startswith("Fine-tune the last 2 of 6 layers at learning rate 5e-5")
    table = browser.find_element(By.CSS_SELECTOR, "section.answer table")
    assert column(table, "kept")[1] == ["100.0 %", "98.0 %", "97.8 %", "85.5 %", "63.5 %"]
    # The line search tried five rates of the full model.
    drawn = browser.find_elements(By.CSS_SELECTOR, "figure.learning_rates svg text")
    assert {f"{rate}e-5" for rate in (1, 2, 3, 5)} <= {text.text for text in drawn}
    pointed = browser.find_elements(By.CSS_SELECTOR, "figure.freeze_curve svg text")
    assert "answer: 2 of 6 layers" in {text.text for text in pointed}


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
    """Return a side of each such element, in pixels from the window's upper left corner."""
    script = (
        "return [...document.querySelectorAll(arguments[0])]"
        ".map((one) => one.getBoundingClientRect()[arguments[1]])"
    )
    return list(browser.execute_script(script, selector, side))


@pytest.fixture(params=PAGES.values(), ids=PAGES.keys())
def opened(page: Browser, request: pytest.FixtureRequest, tmp_path: Path) -> Browser:
    """Return a page with one of several kinds of answers."""
    page.get(write_report(answers_of(request.param), request.param, tmp_path)[0].as_uri())
    return page


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_cut_without_a_sign(opened: Browser, width: int) -> None:
    narrow(opened, width)
    root = "document.documentElement"
    needed, there = opened.execute_script(f"return [{root}.scrollWidth, {root}.clientWidth]")
    assert needed <= there <= width
    assert max(boxes(opened, "figure svg text, h1, p, li, dd, dt", "right")) <= there
    assert min(boxes(opened, "figure svg text", "left"), default=0) >= 0
    # Signs that a phone can show and eyes can read.
    heights = opened.execute_script(
        "return [...document.querySelectorAll('figure svg text:not([transform])')]"
        ".map((text) => text.getBBox().height * text.getScreenCTM().d)"
    )
    assert min(heights) > 7
    for box in opened.find_elements(By.CSS_SELECTOR, ".table, pre"):
        inside, outside = opened.execute_script(
            "return [arguments[0].scrollWidth, arguments[0].clientWidth]", box
        )
        assert outside <= width
        assert has_shade(opened, box) == (inside > outside)
        # Only what there is no room for has to be scrolled.
        assert width < 1400 or box.tag_name == "pre" or inside <= outside
    for table in opened.find_elements(By.CSS_SELECTOR, "section.answer .table:first-child"):
        # On a phone the quality is in sight, elsewhere all of the curve.
        head, _ = column(table, "quality" if width == 400 else "seeds")
        assert head.rect["x"] + head.rect["width"] <= there


def has_shade(browser: Browser, box: WebElement) -> bool:
    """Whether its right edge is darker than its middle, beside its last line's text."""
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", box)
    image = Image.open(io.BytesIO(box.screenshot_as_png)).convert("L")
    # Between border and text: the padding above the box's first line.
    edge, middle = (image.getpixel((image.width - back, 3)) for back in (4, 60))
    return edge < middle - 15


@pytest.mark.parametrize("width", WIDTHS)
def test_the_card_stands_beside_its_figure_where_there_is_room(
    opened: Browser, width: int, request: pytest.FixtureRequest
) -> None:
    narrow(opened, width)
    cards = boxes(opened, "section.answer .card", "right")
    tops = boxes(opened, "section.answer .card", "top")
    lefts = boxes(opened, "figure.freeze_curve", "left")
    figures = boxes(opened, "figure.freeze_curve", "top")
    rights = boxes(opened, "figure.freeze_curve svg", "right")
    assert len(cards) == len(lefts) == (2 if "two tasks" in request.node.name else 1)
    for card, top, left, figure, right in zip(cards, tops, lefts, figures, rights, strict=True):
        if width == 1400:
            assert left > card and abs(figure - top) < 5 and right > 1300
        else:
            assert left < card and figure > top


def test_dark_is_dark_and_paper_is_light(page: Browser) -> None:
    line = page.find_element(By.CSS_SELECTOR, "figure.freeze_curve path[style*='-0']")
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
    assert "95.0 %" in text and "layers fine-tuned" in text
