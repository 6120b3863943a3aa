"""An explanation in a notebook."""

from html.parser import HTMLParser

import pytest

from tests import explanations


class Tags(HTMLParser):
    """The tags and the text of HTML."""

    def __init__(self, html: str) -> None:
        """Read all of it."""
        super().__init__()
        self.tags: set[str] = set()
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note a tag."""
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        """Note text."""
        self.text += data


@pytest.mark.parametrize("name", ["network", "hostile", "not_finite", "empty", "dynamic"])
def test_fragment_is_small_and_without_scripts(name: str) -> None:
    """A notebook keeps it as a few kilobytes of plain tags, whatever the names are."""
    html = getattr(explanations, name)()._repr_html_()
    allowed = {"p", "b", "br", "table", "thead", "tbody", "tr", "th", "td", "ol", "li"}
    assert Tags(html).tags <= allowed
    assert len(html) < 8000


def test_fragment_says_what_matters() -> None:
    """The loss, the worst layer and the first advice are there."""
    text = Tags(explanations.network()._repr_html_()).text
    assert "SQNR of 18.8 dB" in text
    assert "hurts itself" in text
    assert "and 70 better layers" in text
    assert "activation clipping" in text
