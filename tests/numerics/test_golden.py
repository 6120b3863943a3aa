"""Golden vectors: what PyTorch's quantized tensors gave, without needing them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from halfstep.numerics import ops

GOLDEN = json.loads((Path(__file__).parent / "golden" / "torch_quantized.json").read_text())
STORAGES = {"qint8": torch.int8, "quint8": torch.uint8, "qint32": torch.int32}


def name_of(case: dict[str, Any]) -> str:
    """The id of a case."""
    kind = "-float" * isinstance(case["zero_point"][0], float)
    return f"{case['dtype']}-axis-{case['axis']}{kind}"


@pytest.mark.parametrize("case", GOLDEN["cases"], ids=name_of)
def test_the_stored_integers_and_values(case: dict[str, Any]) -> None:
    """Equal integers for stored inputs, and equal values but for PyTorch's fused product."""
    storage, x = STORAGES[case["dtype"]], torch.tensor(case["x"])
    shape = [-1 if dim == case["axis"] else 1 for dim in range(3)]
    scale = torch.tensor(case["scale"], dtype=torch.float64).float().view(shape)
    zero = torch.tensor(case["zero_point"]).view(shape)
    zero = zero if zero.is_floating_point() else zero.to(torch.int32)
    ints = torch.tensor(case["ints"]).to(storage)
    info = torch.iinfo(storage)
    assert torch.equal(ops.quantize(x, scale, zero, info.min, info.max, storage), ints)
    values = ops.dequantize(ints, scale, zero, torch.float32)
    slack = (zero * scale).abs().max().item() * 2.0**-23
    torch.testing.assert_close(values, torch.tensor(case["values"]), rtol=2.0**-22, atol=slack)


def test_every_form_is_stored() -> None:
    """Three dtypes per tensor, two along each of three axes, one with a float zero point."""
    assert {name_of(case) for case in GOLDEN["cases"]} == {
        *(f"{dtype}-axis-None" for dtype in STORAGES),
        *(f"{dtype}-axis-{axis}" for dtype in ("qint8", "quint8") for axis in range(3)),
        "quint8-axis-0-float",
    }
