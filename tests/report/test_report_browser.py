"""The page in a real browser: it asks for nothing, complains of nothing, and fits a desk and a phone."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, browsing, find_chromium
from status_samples import long_manifest, long_run

from vibeserve.journal import read_events
from vibeserve.report import render_report

CHROMIUM = find_chromium()
DESK, PHONE = 1280, 390
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium"),
]
OVERFLOWING = """
[...document.querySelectorAll('body *')]
  .filter(each => !each.closest('.scroll, .figure') && each.getBoundingClientRect().right > innerWidth + 1)
  .map(each => each.tagName + ' ' + each.className)
"""
SMALL_LINKS = """
[...document.querySelectorAll('nav a, summary')].filter(each => each.getBoundingClientRect().height < 24).length
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    journal = long_run(folder, num_rounds=40)
    path = folder / "report.html"
    path.write_text(render_report(long_manifest(journal), events=read_events(journal)))
    return path


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    assert CHROMIUM is not None
    with browsing(CHROMIUM, profile=tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.mark.parametrize(("width", "is_dark"), [(DESK, False), (PHONE, False), (DESK, True)])
def test_it_loads_nothing_says_nothing_and_fits(
    browser: Browser, page: Path, width: int, is_dark: bool, tmp_path: Path
) -> None:
    browser.requests.clear()
    browser.complaints.clear()
    browser.visit(page, width=width, is_dark=is_dark)
    assert browser.requests == [page.as_uri()]
    assert browser.complaints == []
    assert browser.ask("innerWidth") == width
    assert browser.ask("document.documentElement.scrollWidth") == width, "no sideways scrolling of the page"
    assert browser.ask(OVERFLOWING) == []
    assert browser.ask("document.querySelectorAll('svg').length") >= 8
    assert browser.ask(SMALL_LINKS) == 0, "a thumb can hit them"
    picture = tmp_path / "page.png"
    browser.picture(picture)
    data = picture.read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">I", data[16:20]) == (width,)


def test_dark_and_light_differ_and_every_text_stands_out(browser: Browser, page: Path) -> None:
    colours = []
    for is_dark in (False, True):
        browser.visit(page, width=DESK, is_dark=is_dark)
        style = "getComputedStyle(document.body)"
        colours.append((browser.ask(f"{style}.color"), browser.ask(f"{style}.backgroundColor")))
    assert colours[0] != colours[1] and all(ink != paper for ink, paper in colours)


def test_what_is_wrong_with_a_page_is_seen(browser: Browser, tmp_path: Path) -> None:
    """The checks above can fail."""
    bad = tmp_path / "bad.html"
    bad.write_text('<div style="width:3000px">x</div><img src="absent.png"><script>nothing.there()</script>')
    browser.requests.clear()
    browser.complaints.clear()
    browser.visit(bad, width=DESK)
    assert browser.requests == [bad.as_uri(), (tmp_path / "absent.png").as_uri()]
    assert any("nothing is not defined" in each for each in browser.complaints)
    assert browser.ask("document.documentElement.scrollWidth") > DESK and browser.ask(OVERFLOWING) == ["DIV "]
