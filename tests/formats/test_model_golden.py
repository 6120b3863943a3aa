"""Model files that earlier versions wrote: read for ever, to the same bits."""

import json

import pytest

from halfstep.formats import load_model, open_model
from tests.formats.make_model_golden import GOLDEN, outputs
from tests.formats.stored_models import Odd, ReferenceEngine

EXPECTED = json.loads((GOLDEN / "model_outputs.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_golden_models_give_the_stored_outputs(name: str) -> None:
    """Bit for bit, with the class where the file needs it."""
    path = GOLDEN / f"{name}.halfstep"
    model = load_model(path, Odd() if name == "odd" else None, engine=ReferenceEngine())
    assert outputs(name, model) == EXPECTED[name]
    assert open_model(path).extra == {"for": "the tests"}
    assert path.stat().st_size < 50_000
