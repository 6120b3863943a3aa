"""QDQ and QOperator graphs: integers, scales and zero points as ONNX itself reads them."""

import contextlib
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
import torch
from hypothesis import given
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)

from halfstep.errors import FileFormatError, MissingExtraError
from halfstep.formats import load_tensors, open_file
from halfstep.spec import PerChannel, PerGroup, PerTensor, QSpec, int4, int8, int32, uint4, uint8
from halfstep.tensor import QTensor
from tests.strategies import THOROUGH


def model(nodes: list[Any], constants: list[Any], opset: int = 21) -> onnx.ModelProto:
    """A graph over these constants; inputs and outputs do not matter here."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, None)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])


def tensor(name: str, kind: int, values: Any) -> onnx.TensorProto:
    """A constant."""
    array = np.array(values)
    return helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist())


CODES = [[1, -2, 3, -4], [5, -6, 7, -8]]
FORMS: dict[str, tuple[int, Any, Any, Any, dict[str, int], QSpec]] = {
    "per tensor": (TensorProto.INT8, CODES, 0.5, 3, {}, QSpec(int8)),
    "no zero point": (TensorProto.INT8, CODES, 0.5, None, {}, QSpec(int8)),
    "uint8": (TensorProto.UINT8, np.abs(CODES), [0.5], [3], {}, QSpec(uint8)),
    "per channel": (
        TensorProto.INT8,
        CODES,
        [0.5, 0.25],
        [1, -1],
        {"axis": 0},
        QSpec(int8, PerChannel(0)),
    ),
    "last axis": (
        TensorProto.INT8,
        CODES,
        [0.5, 0.25, 1.0, 2.0],
        None,
        {"axis": -1},
        QSpec(int8, PerChannel(1)),
    ),
    "bias": (
        TensorProto.INT32,
        [70000, -3],
        [0.5, 0.25],
        None,
        {"axis": 0},
        QSpec(int32, PerChannel(0)),
    ),
    "int4": (TensorProto.INT4, CODES, 0.5, 1, {}, QSpec(int4)),
    "blocks": (
        TensorProto.INT4,
        CODES,
        [[0.5, 0.25], [1.0, 2.0]],
        [[0, 1], [2, 3]],
        {"axis": 1, "block_size": 2},
        QSpec(int4, PerGroup(1, 2)),
    ),
    "uint4": (TensorProto.UINT4, np.abs(CODES), 0.5, 8, {}, QSpec(uint4)),
}


@pytest.mark.parametrize(
    ("kind", "codes", "scale", "zero", "attributes", "spec"), FORMS.values(), ids=FORMS
)
def test_weights_of_qdq_graphs(
    tmp_path: Path, kind: int, codes: Any, scale: Any, zero: Any, attributes: Any, spec: QSpec
) -> None:
    """Every form of DequantizeLinear, with the values of ONNX's reference."""
    constants = [tensor("w", kind, codes), tensor("s", TensorProto.FLOAT, scale)]
    if zero is not None:
        constants.append(tensor("z", kind, zero))
    names = [constant.name for constant in constants]
    node = helper.make_node("DequantizeLinear", names, ["y"], **attributes)
    proto = model([node], constants)
    onnx.save(proto, tmp_path / "m.onnx")
    (found,) = load_tensors(tmp_path / "m.onnx").values()
    assert isinstance(found, QTensor)
    assert found.spec == spec
    assert found.int_repr().tolist() == np.array(codes).tolist()
    (expected,) = ReferenceEvaluator(proto).run(None, {"x": np.zeros(1, np.float32)})
    assert torch.equal(found.dequantize(), torch.from_numpy(np.array(expected, np.float32)))


def test_weights_of_operators(tmp_path: Path) -> None:
    """QLinearConv per output channel, QLinearMatMul per column, MatMulInteger scaled later."""
    constants = [
        tensor("one", TensorProto.FLOAT, 1.0),
        tensor("zero", TensorProto.UINT8, 0),
        tensor("conv", TensorProto.INT8, np.ones((2, 1, 1, 1), int)),
        tensor("conv_s", TensorProto.FLOAT, [0.5, 0.25]),
        tensor("conv_z", TensorProto.INT8, [0, 0]),
        tensor("mat", TensorProto.INT8, np.ones((3, 2), int)),
        tensor("mat_s", TensorProto.FLOAT, [0.5, 0.25]),
        tensor("mat_z", TensorProto.INT8, [0, 0]),
        tensor("later", TensorProto.INT8, np.ones((3, 2), int)),
        tensor("later_s", TensorProto.FLOAT, 0.125),
        tensor("later_z", TensorProto.INT8, 0),
    ]
    make = helper.make_node
    quantized = ["x", "one", "zero"]
    nodes = [
        make("QLinearConv", [*quantized, "conv", "conv_s", "conv_z", "one", "zero"], ["a"]),
        make("QLinearMatMul", [*quantized, "mat", "mat_s", "mat_z", "one", "zero"], ["b"]),
        make("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        make("MatMulInteger", ["q", "later", "qz", "later_z"], ["i"]),
        make("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        make("Mul", ["qs", "later_s"], ["scales"]),
        make("Mul", ["f", "scales"], ["y"]),
    ]
    onnx.save(model(nodes, constants), tmp_path / "m.onnx")
    opened = open_file(tmp_path / "m.onnx")
    specs = {name: stored.spec for name, stored in opened.tensors.items()}
    assert specs == {
        "one": None,
        "zero": None,
        "conv": QSpec(int8, PerChannel(0)),
        "mat": QSpec(int8, PerChannel(1)),
        "later": QSpec(int8, PerTensor()),
    }
    assert opened.about[1] == (
        "nodes: 7, of them 1 DynamicQuantizeLinear, 1 QLinearConv, 1 QLinearMatMul, 1 MatMulInteger"
    )
    assert load_tensors(tmp_path / "m.onnx")["later"].dequantize().unique().tolist() == [0.125]


class _Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Four random inputs."""

    def __init__(self) -> None:
        generator = np.random.default_rng(0)
        self._data = [generator.normal(size=(2, 3, 6, 6)).astype(np.float32) for _ in range(4)]

    def get_next(self) -> Any:
        """The next one, None at the end."""
        return {"x": self._data.pop()} if self._data else None


@pytest.fixture(scope="module")
def float_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution and a matrix product, as ONNX Runtime's quantizer wants them."""
    generator = np.random.default_rng(0)
    weights = {"conv": (4, 3, 3, 3), "fc": (64, 5)}
    constants = [
        numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("Conv", ["x", "conv"], ["a"]),
        helper.make_node("Flatten", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "fc"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 6, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 5])
    graph = helper.make_graph(nodes, "g", [x], [y], constants)
    path = tmp_path_factory.mktemp("onnx") / "float.onnx"
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("form", [QuantFormat.QDQ, QuantFormat.QOperator, None], ids=str)
def test_what_onnxruntime_writes(float_model: Path, tmp_path: Path, form: Any) -> None:
    """Static in both forms and dynamic: the weights are within half a step of the float ones."""
    path = tmp_path / "q.onnx"
    if form is None:
        quantize_dynamic(str(float_model), str(path), weight_type=QuantType.QInt8)
    else:
        quantize_static(str(float_model), str(path), _Reader(), quant_format=form, per_channel=True)
    originals = {t.name: numpy_helper.to_array(t) for t in onnx.load(float_model).graph.initializer}
    loaded = load_tensors(path)
    for name, original in originals.items():
        q = next(t for n, t in loaded.items() if n.startswith(name) and t.ndim == original.ndim)
        assert isinstance(q, QTensor)
        error = (q.dequantize() - torch.from_numpy(original.copy())).abs()
        assert bool((error <= q.scale * 0.501).all())


def test_external_data_is_read_beside_the_file_alone(tmp_path: Path) -> None:
    """Weights in a second file; one outside of the folder is refused."""
    inside, outside = tmp_path / "inside", tmp_path / "weights.bin"
    inside.mkdir()
    weight = numpy_helper.from_array(np.arange(6, dtype=np.float32), "w")
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], [weight])
    onnx.save(
        proto, inside / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0
    )
    assert load_tensors(inside / "m.onnx")["w"].tolist() == [0, 1, 2, 3, 4, 5]
    (inside / "w.bin").rename(outside)
    data = (inside / "m.onnx").read_bytes()
    assert data.count(b"w.bin") == 1
    moved = onnx.load_model_from_string(data)
    moved.graph.initializer[0].external_data[0].value = "../weights.bin"
    (inside / "m.onnx").write_bytes(moved.SerializeToString())
    with pytest.raises(FileFormatError, match=r"m\.onnx: tensor 'w': its data cannot be read"):
        load_tensors(inside / "m.onnx")


def test_without_the_package_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The package onnx is optional."""
    onnx.save(model([], [tensor("w", TensorProto.FLOAT, [1.0])]), tmp_path / "m.onnx")
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'halfstep\[onnx\]'"):
        open_file(tmp_path / "m.onnx")


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    """Text, and blocks that do not divide."""
    constants = [
        helper.make_tensor("text", TensorProto.STRING, (1,), [b"x"]),
        tensor("w", TensorProto.INT8, CODES),
        tensor("s", TensorProto.FLOAT, [[1.0, 1.0], [1.0, 1.0]]),
        tensor("half", TensorProto.BFLOAT16, [1.0, -2.0]),
    ]
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=1, block_size=3)
    onnx.save(model([node], constants), tmp_path / "m.onnx")
    opened = open_file(tmp_path / "m.onnx")
    assert opened.unreadable == {
        "text": "its dtype STRING is not read",
        "w": "blocks of 3 do not divide its 4 elements along axis 1",
    }
    assert opened.tensors["half"].load().tolist() == [1.0, -2.0]


@pytest.mark.slow
@given(
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=6),
    end=st.floats(0, 1),
)
@THOROUGH
def test_damaged_files_are_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[float, int]], end: float
) -> None:
    """Any bytes changed, and cut anywhere: tensors or a FileFormatError, nothing else."""
    constants = [tensor("w", TensorProto.INT4, CODES), tensor("s", TensorProto.FLOAT, 0.5)]
    node = helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=1)
    data = bytearray(model([node], constants).SerializeToString())
    for place, value in changes:
        data[int(place * (len(data) - 1))] = value
    path = tmp_path_factory.mktemp("changed") / "m.onnx"
    path.write_bytes(data if end > 0.5 else data[: int(2 * end * len(data))])
    with contextlib.suppress(FileFormatError):
        load_tensors(path)
