"""Targets that make no sense, and those that nothing can be measured for."""

import math
from typing import Any

import pytest
from torch import Tensor, nn

import halfstep as hs
from halfstep.flows import ptq
from tests.flows.small import X, mlp


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_drop": 0.1}, "and not of what: give evaluate="),
        ({"evaluate": len}, "not how much of it may be lost: give max_drop="),
        ({"evaluate": 3, "max_drop": 0.1}, "evaluate=3 is no function"),
        ({"evaluate": len, "max_drop": -1}, r"max_drop=-1: give a number in the unit"),
        ({"min_sqnr": -3}, "min_sqnr=-3: give a number in decibels, 0 or more"),
        ({"min_sqnr": math.nan}, "min_sqnr=nan: give a number"),
        ({"min_sqnr": "25"}, "min_sqnr='25': give a number"),
        ({"min_sqnr": 25, "evaluate": len, "max_drop": 0.1}, "give one of them"),
        ({"evaluate": lambda model: math.nan, "max_drop": 0.1}, "returned nan for the float model"),
        ({"evaluate": lambda model: "good", "max_drop": 0.1}, "returned 'good' for the float"),
    ],
)
def test_a_target_that_makes_no_sense(options: dict[str, Any], message: str) -> None:
    """The error says what was given, and what to give."""
    with pytest.raises(hs.ArgumentError, match=message):
        ptq.quantize(mlp(), X, **options)


def test_an_sqnr_without_data_or_floats() -> None:
    """There is nothing to measure it on."""
    with pytest.raises(hs.ArgumentError, match="is measured on data, and there is none"):
        ptq.quantize(mlp(), min_sqnr=25)

    class Choice(nn.Sequential):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).argmax(1)

    with pytest.raises(hs.ArgumentError, match="the model returns none: give evaluate="):
        ptq.quantize(Choice(nn.Linear(6, 4)), X, min_sqnr=25)
