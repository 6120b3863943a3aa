"""The page in a real browser: by mouse, by keyboard, narrow, dark, and on paper."""

import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from halfstep.report.page import write as module
from tests.explanations import network

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Opened = Callable[..., "Page"]
FOLDER = Path(module.__file__).parent
SHOWN = "#table tbody tr:not([hidden])"


def names(page: "Page") -> list[str]:
    """The layers of the table, as it shows them."""
    return page.locator(f"{SHOWN} .open").all_inner_texts()


def numbers(page: "Page", column: int) -> list[float]:
    """What a column is sorted by; without the cells that have nothing."""
    cells = page.locator(f"{SHOWN} td:nth-child({column})")
    texts = cells.evaluate_all("cells => cells.map((cell) => cell.dataset.sort)")
    return [float(text) for text in texts if text]


def colors(page: "Page") -> list[tuple[int, tuple[int, int, int]]]:
    """The colors of the window, the most frequent first."""
    image = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    return sorted(image.getcolors(image.width * image.height), reverse=True)


def test_page_is_drawn(opened: Opened) -> None:
    """The plots are there, the worst layer is open, and a screenshot is not blank."""
    page = opened()
    assert page.locator("#depth svg").count() == 1
    assert page.locator("#panel svg").count() == 7
    assert page.locator("#layer-title").inner_text() == network().layers[3].layer
    assert len(colors(page)) > 50


def test_table_sorts_by_every_column(opened: Opened) -> None:
    """A click on a head sorts by it, a second one the other way, and the head says so."""
    page = opened()
    heads = page.locator("#table thead th")
    for place in range(heads.count()):
        head = heads.nth(place)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        assert page.locator('#table th:not([aria-sort="none"])').count() == 1
    for column in (1, 5, 6, 9, 12):
        button = heads.nth(column - 1).locator("button")
        button.click()
        first = numbers(page, column)
        button.click()
        assert sorted(first) == sorted(numbers(page, column))
        assert {tuple(first), tuple(numbers(page, column))} == {
            tuple(sorted(first)),
            tuple(sorted(first, reverse=True)),
        }


def test_cells_without_a_number_come_last(opened: Opened) -> None:
    """Layers that stayed float have no time, and are last in either direction."""
    page = opened()
    for _ in range(2):
        page.locator("#table thead button").last.click()
        assert {name[:7] for name in names(page)[-4:]} == {"softmax"}


def test_filters_narrow_the_table(opened: Opened) -> None:
    """Text, verdict and the way of running each leave what fits; the count says how many."""
    page = opened()
    page.fill("#find", "SOFTMAX exponentials")
    assert names(page) == ["softmax_19", "softmax_39", "softmax_59", "softmax_79"]
    page.fill("#find", "")
    page.select_option("#verdict", "hurts itself")
    assert names(page) == [network().layers[3].layer]
    page.select_option("#runs", "float")
    assert page.locator("#none").is_visible()
    assert page.locator("#count").inner_text() == "0 of 80"


def test_layer_opens_by_mouse(opened: Opened) -> None:
    """A click on a row opens its layer, marks the row, and tells a screen reader."""
    page = opened()
    page.locator(f"{SHOWN} td.op").nth(7).click()
    name = names(page)[7]
    page.wait_for_function("name => opened.textContent === `Opened ${name}`", arg=name)
    assert page.locator("#layer-title").inner_text() == name
    assert page.locator("tr.selected .open").inner_text() == name
    assert page.evaluate("document.activeElement.id") == "layer"


def test_layer_opens_by_keyboard(opened: Opened) -> None:
    """The skip link leads to the table; arrows walk through it, Enter opens a layer."""
    page = opened()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "layers"
    page.locator(".open").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    name = names(page)[1]
    page.wait_for_function("name => opened.textContent === `Opened ${name}`", arg=name)


def test_every_control_shows_its_focus(opened: Opened) -> None:
    """Whoever walks by Tab sees where he is, until the first layers of the table."""
    page = opened()
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    for _ in range(30):
        page.keyboard.press("Tab")
        assert page.evaluate(outline) != "none", page.evaluate("document.activeElement.outerHTML")


def test_click_in_the_plot_opens_the_nearest_layer(opened: Opened) -> None:
    """The right end of the plot is the last layer."""
    page = opened()
    plot = page.locator("#depth svg")
    width = plot.evaluate("plot => plot.clientWidth")
    plot.click(position={"x": width - 8, "y": 120})
    page.wait_for_function("opened.textContent === 'Opened softmax_79'")


def test_integers_are_told_cell_by_cell(opened: Opened) -> None:
    """Arrow keys walk through the integers; each says its code, scale, zero point and float."""
    page = opened()
    weight = network().layers[3].weight
    assert weight is not None
    page.locator("#weights td").first.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("End")
    told = page.locator("#weights .readout").inner_text().replace("−", "-")
    assert told.startswith(f"row 1, value 63: code {weight.integers[1][63]}, scale")
    value = float(told.rpartition("in float ")[2])
    assert value == pytest.approx(weight.integers[1][63] * weight.scale[1], rel=1e-3)
    assert "the first 64 of 72 values of each" in page.locator("#weights p").inner_text()


@pytest.mark.parametrize("name", ["network", "hostile", "not_finite", "empty", "dynamic"])
def test_page_fits_its_window(opened: Opened, name: str) -> None:
    """Nothing makes the page itself scroll sideways, on a phone and when the window grows."""
    page = opened(name, width=390)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_dark_follows_the_system_and_the_switch(opened: Opened) -> None:
    """A dark system gives a dark page; the switch turns it light."""
    page = opened(scheme="dark")
    assert sum(colors(page)[0][1]) < 150
    page.get_by_role("button", name="Switch to light colors").click()
    assert sum(colors(page)[0][1]) > 650


def test_paper_has_everything_open_and_no_controls(opened: Opened) -> None:
    """Printed from a dark screen, it is dark on white, opened, and of several pages."""
    page = opened(scheme="dark")
    assert page.pdf(prefer_css_page_size=True).count(b"/Type /Page\n") > 2
    assert page.locator("details").evaluate("part => part.open")
    page.emulate_media(media="print")
    assert not page.locator("#find").is_visible()
    assert not page.locator("#theme").is_visible()
    assert colors(page)[0][1] == (255, 255, 255)


def test_names_never_become_code(opened: Opened) -> None:
    """A name with a script in it shows as it is, wherever a name shows."""
    page = opened("hostile")
    page.locator("tr.selected .open").click()
    page.wait_for_function("opened.textContent.startsWith('Opened </script>')")
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.locator("h1").inner_text().startswith("</script><img")


@pytest.mark.parametrize("name", ["not_finite", "empty", "dynamic", "identical"])
def test_odd_explanations_are_told_in_words(opened: Opened, name: str) -> None:
    """What is not finite, not measured or not there is said; no NaN, undefined or null shows."""
    page = opened(name)
    shown = page.locator("body").inner_text()
    assert not [word for word in ("NaN", "undefined", "null", "Infinity") if word in shown]
    said = {
        "not_finite": "The error is not finite",
        "empty": "nothing to list",
        "dynamic": "recipe dynamic_int8",
        "identical": "No difference",
    }
    assert said[name] in shown


@pytest.mark.parametrize(
    ("spec", "axis", "shape", "scales", "places"),
    [
        ("QSpec(int8)", 0, [4, 6], 1, [0, 0, 0]),
        ("QSpec(int8, PerChannel(axis=0))", 0, [4, 6, 3], 4, [0, 1, 3]),
        ("QSpec(int8, PerChannel(axis=1))", 1, [4, 6, 3], 6, [0, 2, 5]),
        ("QSpec(int4, PerGroup(axis=1, size=2))", 0, [4, 6], 12, [0, 4, 11]),
        ("QSpec(int4, PerGroup(axis=1, size=2))", 0, [4, 6, 3], 36, [0, 14, 35]),
        ("QSpec(int4, PerGroup(axis=0, size=2))", 0, [4, 6], 12, [None, None, None]),
    ],
)
def test_integers_find_their_scale(  # the cells: the first, one inside, and the last
    browser: "Browser", spec: str, axis: int, shape: list[int], scales: int, places: list[int]
) -> None:
    """Each cell of the grid is told with its own scale, for every granularity."""
    inside = math.prod(shape[2:])
    cells = [(0, 0), (1, 3 * inside - 1), (shape[0] - 1, math.prod(shape[1:]) - 1)]
    values = {"spec": spec, "axis": axis, "shape": shape, "scale": [1] * scales}
    script = (FOLDER / "weights.js").read_text(encoding="utf-8")
    places_of = "cells.map((at) => scalePlace(values, ...at))"
    page = browser.new_page()
    found = page.evaluate(
        f"([values, cells]) => {{ {script}; return {places_of}; }}", [values, cells]
    )
    page.close()
    assert found == places
