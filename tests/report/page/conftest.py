"""One browser for all tests of the page, and the pages that they open."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests import explanations

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from halfstep.report.explanation import Explanation

Opened = Callable[..., "Page"]


@pytest.fixture(scope="session")
def browser() -> "Iterator[Browser]":
    """Chromium without a window."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    found = shutil.which("chromium")
    if found is None:
        pytest.skip("no chromium here: the page is tested in a browser where there is one")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def written(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The page of an explanation by the name of what makes it, written once."""
    folder = tmp_path_factory.mktemp("pages")

    def write(name: str) -> Path:
        path = folder / f"{name}.html"
        if not path.exists():
            found: Explanation = getattr(explanations, name)()
            found.to_html(path)
        return path

    return write


@pytest.fixture
def opened(browser: "Browser", written: Callable[[str], Path]) -> Iterator[Opened]:
    """Opens a page; afterwards, it must have complained of nothing and asked for nothing."""
    contexts, complaints, requests = [], [], []

    def open_page(name: str = "network", width: int = 1280, scheme: str = "light") -> "Page":
        context = browser.new_context(
            viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(written(name).as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert complaints == []
    own = ("file:", "data:,")
    assert [url for url in requests if not url.startswith(own)] == []
