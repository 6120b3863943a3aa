"""What `import halfstep as hs` offers is listed, sorted, explained, and shown by an example."""

import inspect
import re
from importlib.metadata import version
from types import ModuleType, UnionType

import pytest

import halfstep
from tests.house.repository import ROOT


def explained_by(name: str) -> str:
    """The docstring of a public object; a constant by its class, a union by its members."""
    thing = getattr(halfstep, name)
    if isinstance(thing, UnionType):
        return min((inspect.getdoc(member) or "" for member in thing.__args__), key=len)
    own = callable(thing) or isinstance(thing, ModuleType)
    return inspect.getdoc(thing if own else type(thing)) or ""


def natural(name: str) -> list[str | int]:
    """The order of a person: int8 before int16."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def test_all_is_sorted_and_has_no_duplicates() -> None:
    """A reader finds a name where the alphabet puts it."""
    assert list(halfstep.__all__) == sorted(set(halfstep.__all__), key=natural)


def test_all_is_exactly_what_is_public() -> None:
    """Every name without an underscore is meant to be used, and listed."""
    found = {name: getattr(halfstep, name) for name in dir(halfstep) if not name.startswith("_")}
    public = {name for name, thing in found.items() if not isinstance(thing, ModuleType)}
    listed = {name for name in halfstep.__all__ if not name.startswith("_")}
    modules = {name for name in listed if isinstance(getattr(halfstep, name), ModuleType)}
    assert listed - modules == public


@pytest.mark.parametrize("name", [n for n in halfstep.__all__ if not n.startswith("_")])
def test_public_object_is_explained_by_an_example(name: str) -> None:
    """Every public object has a docstring with an example, which runs as a doctest."""
    assert ">>>" in explained_by(name), f"halfstep.{name} has no example in its docstring"


def test_versions_agree() -> None:
    """The package, its metadata and the changelog name one version."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^\]]*)\]", changelog, flags=re.MULTILINE)
    assert newest is not None
    assert halfstep.__version__ == version("halfstep") == newest[1]
