"""A recurrent network in integers, inside a loop that no exporter can unroll."""

import pytest

import halfstep as hs
from examples.real import g2p

pytestmark = [pytest.mark.models, pytest.mark.slow]


def test_words_are_said_as_in_float() -> None:
    """Word accuracy within 0.01 of 0.6855 on 2,000 words: measured 0.6865."""
    result = hs.ptq.quantize(g2p.load_model(), recipe=hs.recipes.dynamic_int8())
    assert {row.runs for row in result.coverage.rows} == {"dynamic int8", "int8 weights"}
    accuracy = g2p.accuracy(result.model, g2p.load_words())
    assert accuracy == pytest.approx(0.6855, abs=0.01)
