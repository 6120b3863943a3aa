"""Long texts are compressed; nothing but what was written is read."""

import base64
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from halfstep.errors import FileFormatError
from halfstep.formats import squeezed as module
from halfstep.formats.squeezed import squeezed, unsqueezed


@given(st.text(max_size=100), st.sampled_from([1, 5_000]))
def test_any_text_comes_back(text: str, times: int) -> None:
    """Short and long, of any characters."""
    whole = text.removeprefix("zlib:") * times
    if not whole.startswith("zlib:"):
        assert unsqueezed(squeezed(whole)) == whole


@pytest.mark.parametrize(
    "text",
    [
        "zlib:?",
        "zlib:" + base64.b64encode(b"no stream").decode(),
        squeezed("long " * 100_000)[:-8],
        "zlib:" + base64.b64encode(zlib.compress(b"\xff")).decode(),
    ],
    ids=["no base64", "no stream", "cut off", "no text"],
)
def test_what_is_no_such_text_is_refused(text: str) -> None:
    """As the corrupt file that it is."""
    with pytest.raises(FileFormatError, match="corrupt"):
        unsqueezed(text)


def test_a_bomb_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small stream that would fill the memory is not followed to its end."""
    monkeypatch.setattr(module, "_MOST", 1_000)
    with pytest.raises(FileFormatError, match="beyond"):
        unsqueezed(squeezed("0" * 1_000_000))
