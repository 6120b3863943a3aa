"""ONNX's own node tests of QuantizeLinear and DequantizeLinear."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from halfstep.numerics import ops
from halfstep.spec import QDType
from tests.assertions import assert_same_bits

onnx = pytest.importorskip("onnx")
FOLDER = Path(onnx.__file__).parent / "backend" / "test" / "data" / "node"
if not FOLDER.is_dir():
    pytest.skip("this release of onnx ships no node test data", allow_module_level=True)

QUANTIZE = [
    *("axis", "blocked_asymmetric", "blocked_symmetric", "int16", "int2", "int4"),
    *("uint16", "uint2", "uint4"),
]
DEQUANTIZE = ["axis", "blocked", "int16", "int2", "int4", "uint16", "uint2", "uint4"]
RUN = [
    "test_quantizelinear",
    *(f"test_quantizelinear_{name}" for name in QUANTIZE),
    "test_dequantizelinear",
    *(f"test_dequantizelinear_{name}" for name in DEQUANTIZE),
]
FLOAT_FORMATS = {  # 8- and 4-bit floats: Halfstep quantizes to integers
    *(f"test_quantizelinear_{name}" for name in ("e4m3fn", "e5m2", "float4e2m1")),
    *(f"test_dequantizelinear_{name}" for name in ("e4m3fn", "e5m2", "float4e2m1")),
    *(f"test_dequantizelinear_e4m3fn_{name}" for name in ("float16", "zero_point")),
}


def load(path: Path) -> tuple[Tensor, QDType | None]:
    """A stored tensor, and its integer format when it has one."""
    proto = onnx.TensorProto.FromString(path.read_bytes())
    name = onnx.TensorProto.DataType.Name(proto.data_type).lower()
    array = onnx.numpy_helper.to_array(proto)
    if name.startswith("float"):
        return torch.from_numpy(np.array(array)), None
    dtype = QDType.parse(name)
    # ONNX's 2- and 4-bit arrays are of ml_dtypes, which torch does not take.
    return torch.from_numpy(np.array(array, dtype="int64")).to(dtype.storage), dtype


def full_shape(qparam: Tensor, x: Tensor, axis: int, block_size: int) -> Tensor:
    """ONNX's scalar, vector along an axis, or blocks, with all of x's dimensions."""
    if block_size:
        return qparam
    if qparam.numel() == 1:
        return qparam.reshape((1,) * x.ndim)
    return qparam.reshape([-1 if dim == axis % x.ndim else 1 for dim in range(x.ndim)])


def read(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor, QDType]:
    """(x or q, scale, zero_point, output, integer format) of a case."""
    node = onnx.load(FOLDER / name / "model.onnx").graph.node[0]
    data = FOLDER / name / "test_data_set_0"
    count = len(list(data.glob("input_*.pb")))
    (x, x_type), (scale, _), *rest = (load(data / f"input_{i}.pb") for i in range(count))
    output, output_type = load(data / "output_0.pb")
    attributes: dict[str, Any] = {a.name: a.i for a in node.attribute}
    where = attributes.get("axis", 1), attributes.get("block_size", 0)
    zero = rest[0][0].to(torch.int32) if rest else torch.zeros_like(scale, dtype=torch.int32)
    dtype = x_type or output_type
    assert dtype is not None
    return x, full_shape(scale, x, *where), full_shape(zero, x, *where), output, dtype


@pytest.mark.parametrize("name", RUN)
def test_node(name: str) -> None:
    """The stored output in every bit."""
    x, scale, zero, output, dtype = read(name)
    if name.startswith("test_quantize"):
        result = ops.quantize(x, scale, zero, dtype.qmin, dtype.qmax, dtype.storage)
    else:
        result = ops.dequantize(x, scale, zero, output.dtype)
    assert_same_bits(result, output)


def test_no_case_is_left_out_in_silence() -> None:
    """What is run and what is skipped, with its reason, are all that ONNX ships."""
    shipped = {path.name for path in FOLDER.glob("test_*quantizelinear*")}
    dynamic = {name for name in shipped if name.startswith("test_dynamicquantizelinear")}
    assert shipped - dynamic == {*RUN, *FLOAT_FORMATS}


@pytest.mark.parametrize("kind", ["", "_max_adjusted", "_min_adjusted"])
def test_dynamic_quantize(kind: str) -> None:
    """DynamicQuantizeLinear is min_max, choose_qparams, quantize: scale, zero point and codes."""
    data = FOLDER / f"test_dynamicquantizelinear{kind}" / "test_data_set_0"
    x, _ = load(data / "input_0.pb")
    outputs = [load(data / f"output_{index}.pb")[0] for index in range(3)]
    lo, hi = ops.min_max(x, (1,) * x.ndim)
    scale, zero = ops.choose_qparams(lo, hi, 0, 255, False)
    q = ops.quantize(x, scale, zero, 0, 255, torch.uint8)
    assert torch.equal(q, outputs[0])
    assert_same_bits(scale.reshape(()), outputs[1])
    assert zero.item() == outputs[2].item()
