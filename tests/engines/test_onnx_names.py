"""What a user of the file sees: names, sizes that vary, and errors."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from halfstep.engines.onnx_export import onnx_bytes
from halfstep.errors import ArgumentError
from halfstep.graph.program import Input
from tests.engines.calibrated import calibrated, in_float
from tests.engines.running import onnx_model, run_onnx
from tests.graph.zoo import rand
from tests.graph.zoo_cases import WHOLE, made


def sizes(value: Any) -> list[Any]:
    """The dimensions of an input or output, numbers or names."""
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


def test_names_of_inputs_outputs_and_parameters_stay() -> None:
    """Keys of dicts name outputs; inputs are called as forward calls them."""
    case = WHOLE["outputs"]
    args, kwargs = case.arguments()[0]
    plain = in_float(made(case), args, kwargs)
    written = onnx_model(plain.quantized, plain.module)
    assert [v.name for v in written.graph.input] == ["x", "pair_0", "pair_1", "mask"]
    assert [v.name for v in written.graph.output] == [
        *("pair_first", "pair_second", "answer_score", "list_0", "rows")
    ]
    assert {"fc.weight", "fc.bias"} <= {t.name for t in written.graph.initializer}


def test_equal_sizes_have_one_name_and_fixed_ones_are_numbers() -> None:
    """A size that must equal another's is called as that one."""
    case = WHOLE["same_batch"]
    plain = in_float(made(case), *case.arguments()[0])
    written = onnx_model(plain.quantized, plain.module)
    first, second = (sizes(v) for v in written.graph.input)
    assert first == second
    assert isinstance(first[0], str)
    assert first[1] == 6


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_any_batch(batch: int) -> None:
    """The file takes other batches than the example's."""
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    chosen = calibrated(model.eval(), (rand(2, 3, 8, 8),))
    written = onnx_model(chosen.quantized, chosen.module)
    found = run_onnx(written, chosen.quantized, chosen.given((rand(batch, 3, 9, 7),)))
    assert found[0].shape == (batch, 4)


def test_an_operator_without_a_form_names_its_layer() -> None:
    """And says what to do."""

    class Sorted(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.sort(x)[0]

    plain = in_float(nn.Sequential(nn.Linear(4, 4), Sorted()), (rand(3, 4),))
    with pytest.raises(ArgumentError, match=r"^1: aten\.sort\.default has no form.*replace it"):
        onnx_model(plain.quantized, plain.module)


def test_inputs_of_any_number_of_dimensions_are_refused() -> None:
    """ONNX wants to know it; without data it is not known."""
    plain = in_float(nn.Linear(4, 4), (rand(3, 4),))
    (given,) = plain.quantized.program.inputs
    program = dataclasses.replace(
        plain.quantized.program, inputs=(Input(given.value, given.dtype, None),)
    )
    quantized = dataclasses.replace(plain.quantized, program=program)
    with pytest.raises(ArgumentError, match=r"any number of dimensions.*with batches"):
        onnx_model(quantized, plain.module)


def test_what_depends_on_parameters_alone_is_computed_beforehand() -> None:
    """A weight that is computed has no nodes of its own."""

    class Normed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(rand(5, 4))

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.weight / self.weight.norm(dim=1, keepdim=True))

    plain = in_float(Normed(), (rand(3, 4),))
    written = onnx_model(plain.quantized, plain.module)
    assert [n.op_type for n in written.graph.node] == ["Gemm", "Identity"]


def test_a_graph_that_the_runtime_refuses_is_an_error() -> None:
    """The bytes are tried where ONNX Runtime is installed: zeros through every node."""
    chosen = calibrated(nn.Linear(4, 4).eval(), (rand(3, 4),))
    shapes = {**chosen.quantized.shapes, "input": (3, 5)}
    broken = dataclasses.replace(chosen.quantized, shapes=shapes)
    with pytest.raises(ArgumentError, match="ONNX Runtime does not run the graph"):
        onnx_bytes(broken, chosen.module)
    assert np.frombuffer(onnx_bytes(chosen.quantized, chosen.module), np.uint8).size > 100
