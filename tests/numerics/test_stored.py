"""What a file says of a quantized tensor is checked, whoever wrote it."""

import io
import math
from typing import Any

import pytest
import torch

import halfstep as hs
from halfstep import HalfstepError, PerChannel, QSpec
from halfstep.numerics.stored import check_stored
from halfstep.tensor.qtensor import rebuild_qtensor

CODES = torch.tensor([[1, 2, 3], [4, 5, 6]], dtype=torch.int8)
SCALE, ZERO = torch.full((1, 3), 0.5), torch.zeros(1, 3, dtype=torch.int32)
SPEC = {"dtype": "int8[-9, 9]", "granularity": "PerChannel", "axis": 1}
PACKED = {"dtype": "int4", "granularity": "PerTensor"}
NIBBLES = torch.zeros(3, dtype=torch.uint8)
ONE, NONE = torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.int32)
GOOD: dict[str, Any] = {
    "codes": CODES,
    "scale": SCALE,
    "zero_point": ZERO,
    "spec": SPEC,
    "dtype": torch.float32,
    "shape": None,
}
GOOD_PACKED = GOOD | {
    "codes": NIBBLES,
    "scale": ONE,
    "zero_point": NONE,
    "spec": PACKED,
    "shape": (2, 3),
}
BAD: list[dict[str, Any]] = [
    {"scale": torch.full((3,), 0.5)},
    {"scale": torch.full((1, 2), 0.5)},
    {"scale": SCALE.double()},
    {"scale": SCALE * math.nan},
    {"scale": SCALE * 0},
    {"scale": [0.5]},
    {"scale": hs.quantize(SCALE, hs.int8)},
    {"scale": SCALE.to_sparse()},
    {"scale": SCALE.to("meta")},
    {"zero_point": ZERO + 10},
    {"zero_point": ZERO.float()},
    {"zero_point": ZERO[:, :1]},
    {"zero_point": None},
    {"codes": CODES + 5},
    {"codes": CODES.float()},
    {"codes": CODES.short()},
    {"codes": CODES[0]},
    {"codes": "codes"},
    {"codes": hs.quantize(CODES.float(), hs.int8)},
    {"spec": SPEC | {"axis": 2}},
    {"spec": SPEC | {"axis": "1"}},
    {"spec": SPEC | {"granularity": ["PerChannel"]}},
    {"spec": SPEC | {"size": 3}},
    {"spec": "int8"},
    {"spec": None},
    {"dtype": torch.int8},
    {"dtype": "float32"},
    {"shape": (2, 3)},
]
BAD_PACKED: list[dict[str, Any]] = [
    {"shape": None},
    {"shape": (2, 4)},
    {"shape": (2, -3)},
    {"shape": (-2, -3)},
    {"shape": (2, 2.5)},
    {"shape": "23"},
    {"shape": 6},
    {"shape": (2**40, 2**40)},
    {"shape": (2**62, 2**62, 0), "codes": NIBBLES[:0]},
    {"codes": NIBBLES.view(1, 3)},
    {"codes": NIBBLES.to(torch.int8)},
    {"codes": NIBBLES + 3, "spec": PACKED | {"dtype": "int4[-2, 2]"}},
]


def rebuilt(parts: dict[str, Any]) -> Any:
    """What a pickle that calls ``rebuild_qtensor`` with these parts loads."""
    return rebuild_qtensor(*parts.values(), False, False)


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_parts_that_do_not_fit(bad: dict[str, Any]) -> None:
    """Every part, alone wrong, is an error of Halfstep's."""
    with pytest.raises(HalfstepError):
        rebuilt(GOOD | bad)


@pytest.mark.parametrize("bad", BAD_PACKED, ids=repr)
def test_packed_parts_that_do_not_fit(bad: dict[str, Any]) -> None:
    """So is a shape that the packed bytes do not fill."""
    with pytest.raises(HalfstepError):
        rebuilt(GOOD_PACKED | bad)


def test_parts_that_fit() -> None:
    """What was written is read, its axes counted from the front, and its memory is kept."""
    assert torch.equal(rebuilt(GOOD).int_repr(), CODES)
    assert rebuilt(GOOD_PACKED).shape == (2, 3)
    spec = QSpec(hs.int8, PerChannel(-1))
    assert check_stored((CODES, SCALE, ZERO), spec, torch.float32, None).axis == 1
    assert rebuilt(GOOD).scale.data_ptr() == SCALE.data_ptr()
    bits = CODES.short()
    unsigned = GOOD | {"codes": bits, "spec": SPEC | {"dtype": "uint16"}}
    assert rebuilt(unsigned).int_repr().dtype == torch.uint16


def test_a_hostile_file() -> None:
    """torch.load(weights_only=True) trusts ``rebuild_qtensor``, which trusts nothing."""
    q = hs.quantize(torch.ones(2, 3), hs.int8)
    q._scale = torch.full((1, 1), math.nan)
    file = io.BytesIO()
    torch.save(q, file)
    file.seek(0)
    with pytest.raises(HalfstepError, match="scale=nan is not a step"):
        torch.load(file, weights_only=True)
