"""The report as a browser shows it: nothing is missing, nothing complains, everything fits."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from feedback_transformer.cli import main

RESULTS = Path(__file__).resolve().parents[2] / "results"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
PHONE, DESK = 390, 1200
TOO_WIDE = """
[...document.querySelectorAll('body *:not(svg *)')]
  .filter(e => e.clientWidth && e.scrollWidth > e.clientWidth + 1).map(e => e.outerHTML.slice(0, 80))
"""
CUT_OFF = """
[...document.querySelectorAll('svg.chart text')].filter(e => {
  const [word, chart] = [e, e.closest('svg')].map(part => part.getBoundingClientRect());
  return word.left < chart.left - 2 || word.right > chart.right + 2 || word.bottom > chart.bottom + 2;
}).map(e => e.textContent)
"""
EMPTY = """
[...document.querySelectorAll('svg.chart')].filter(chart => ![...chart.querySelectorAll('.line, .dot, .mean')]
  .some(e => e.getBoundingClientRect().width + e.getBoundingClientRect().height > 2)).map(e => e.ariaLabel)
"""
CONTRAST = """
() => {
  const light = colour => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(v => v / 255)
      .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = light(getComputedStyle(document.body).backgroundColor);
  const words = [...document.querySelectorAll('p, td, th, h1, h2, a, code, .verdict, svg text')];
  const ratios = words.map(e => {
    const ink = light(e.closest('svg') ? getComputedStyle(e).fill : getComputedStyle(e).color);
    return (Math.max(ink, ground) + 0.05) / (Math.min(ink, ground) + 0.05);
  });
  return Math.min(...ratios);
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next((found for name in BROWSERS if (found := shutil.which(name))), None)
    with sync_api.sync_playwright() as playwright:
        try:  # the machine's, or the one that `playwright install chromium` puts where playwright looks
            opened = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        except sync_api.Error:
            pytest.skip("there is no Chromium here: install one, or run `playwright install chromium`")
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the records of this project."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    assert main(["report", "--results", str(RESULTS), "--out", str(path)]) == 0
    return path


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_page_is_whole_fits_and_can_be_read(browser: Any, report: Path, width: int, scheme: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("requestfailed", lambda request: complaints.append(request.url))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(report.as_uri())
    for details in page.query_selector_all("details"):
        details.evaluate("e => { e.open = true }")
    assert complaints == []
    assert [address for address in asked if not address.startswith("data:")] == [report.as_uri()], "all is in one file"
    assert page.evaluate("document.documentElement.scrollWidth") == width, "nothing is to be scrolled sideways"
    assert page.evaluate(TOO_WIDE) == []
    assert page.evaluate(CUT_OFF) == []
    assert page.evaluate(EMPTY) == [], "every chart shows something"
    charts = [chart.bounding_box() for chart in page.query_selector_all("svg.chart")]
    assert charts
    assert all(100 < box["width"] <= width and box["height"] > 50 for box in charts)
    dark_ground = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(13, 17, 23)"
    assert dark_ground == (scheme == "dark")
    assert page.evaluate(CONTRAST) > 3, "ink stands out from the ground"
    targets = page.evaluate("[...document.querySelectorAll('a[href^=\"#\"]')].map(a => a.getAttribute('href'))")
    assert all(page.query_selector(target) for target in targets), "links lead somewhere"
    page.close()


@pytest.mark.slow
def test_the_page_is_printed_dark_on_light(browser: Any, report: Path) -> None:
    page = browser.new_page(viewport={"width": DESK, "height": 900}, color_scheme="dark")
    page.emulate_media(media="print")
    page.goto(report.as_uri())
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert len(page.pdf(format="A4")) > 10_000
    page.close()
