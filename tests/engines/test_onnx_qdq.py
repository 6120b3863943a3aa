"""Where the file has integers, in which formats, and which kernels ONNX Runtime takes for it."""

from collections import Counter
from pathlib import Path
from typing import Any

import onnx
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import halfstep as hs
from halfstep.engines.onnx_qdq import with_int32_bias
from halfstep.errors import ArgumentError
from halfstep.spec import recipes
from tests.engines.calibrated import Calibrated, calibrated
from tests.engines.running import kernels, onnx_model, reference, run_onnx
from tests.graph.zoo import Block, PaddedConv, rand


def net(*layers: nn.Module) -> nn.Module:
    """A model in eval mode with the same weights each time."""
    torch.manual_seed(0)
    for layer in layers:
        for part in layer.modules():
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()
    return nn.Sequential(*layers).eval()


def assert_equal_to_reference(chosen: Calibrated, written: Any, *args: Tensor) -> None:
    """Within the rounding of float32."""
    inputs = chosen.given(args)
    expected = reference(chosen.quantized, chosen.module, inputs)
    torch.testing.assert_close(
        run_onnx(written, chosen.quantized, inputs)[0], expected, rtol=0, atol=1e-4
    )


def operators(model: Any) -> Counter[str]:
    """How many nodes of each kind the file has."""
    return Counter(node.op_type for node in model.graph.node)


def opset(model: Any) -> int:
    """The version of the file's operators."""
    return int(model.opset_import[0].version)


def test_a_residual_block_runs_in_integer_kernels(tmp_path: Path) -> None:
    """Convolutions with their ReLU, the sum and what follows it: no float kernel is left."""
    model = net(Block(), nn.Conv2d(8, 4, 1))
    x = rand(2, 3, 8, 8)
    chosen = calibrated(model, (x,))
    written = onnx_model(chosen.quantized, chosen.module)
    used = kernels(written, tmp_path / "optimized.onnx")
    assert used["QLinearConv"] == 3
    assert used["QLinearAdd"] == 1
    assert not used.keys() & {"Conv", "Add", "Relu", "Clip"} - {"Conv"}
    assert_equal_to_reference(chosen, written, x)


def test_one_pair_of_nodes_serves_all_readers() -> None:
    """A value that two layers read is quantized once."""

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.one(x) * self.two(x)

    chosen = calibrated(Twice(), (rand(4, 6),))
    written = onnx_model(chosen.quantized, chosen.module)
    assert sum(node.input[0] == "x" for node in written.graph.node) == 1


def test_zero_padding_becomes_the_convolutions_own(tmp_path: Path) -> None:
    """Also where zero is not the lowest code: padding is the code of 0.0."""
    model = net(nn.Conv2d(3, 4, 1), PaddedConv(4, 4, 3, stride=2), nn.ReLU())

    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: Tensor) -> Tensor:
            y = F.pad(self.inner[0](x), (1, 2, 0, 1))
            return F.conv2d(y, self.inner[1].weight, self.inner[1].bias, 2)

    x = rand(2, 3, 9, 8)
    chosen = calibrated(Fixed(), (x,))
    written = onnx_model(chosen.quantized, chosen.module)
    assert operators(written)["Pad"] == 0
    pads = [a for n in written.graph.node for a in n.attribute if a.name == "pads"]
    assert list(pads[-1].ints) == [0, 1, 1, 2]
    assert_equal_to_reference(chosen, written, x)


def test_a_linear_layer_has_an_int32_bias(tmp_path: Path) -> None:
    """In steps of the product of the scales, one a channel; the kernel is one of integers."""
    chosen = calibrated(net(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), (rand(6, 16),))
    written = onnx_model(chosen.quantized, chosen.module)
    kinds = {t.name: t.data_type for t in written.graph.initializer}
    assert kinds["0.bias"] == onnx.TensorProto.INT32
    assert kinds["0.weight"] == onnx.TensorProto.INT8
    assert kernels(written, tmp_path / "optimized.onnx").get("QGemm") == 2


def test_a_bias_that_does_not_fit_makes_the_weights_coarser() -> None:
    """|bias / (x_scale * w_scale)| above 2^31: the channel's scale grows, the result stays."""
    model = net(nn.Conv2d(2, 3, 1), nn.ReLU(), nn.Conv2d(3, 3, 1))
    with torch.no_grad():
        model[0].weight[1] *= 1e-9
        model[0].bias[1] = 3.0
    x = rand(2, 2, 5, 5)
    chosen = calibrated(model, (x,))
    written = onnx_model(chosen.quantized, chosen.module)
    assert_equal_to_reference(chosen, written, x)
    (bias,) = [t for t in written.graph.initializer if t.name == "0.bias"]
    codes = onnx.numpy_helper.to_array(bias)
    assert abs(int(codes[1])) > 2**30
    assert abs(int(codes[0])) < 2**24


@given(
    st.floats(1e-12, 1e3), st.floats(1e-12, 1e3), st.floats(-1e6, 1e6), st.sampled_from([None, 0])
)
@settings(max_examples=200, deadline=None)
def test_int32_biases_never_overflow(
    x_scale: float, w_scale: float, bias: float, axis: int | None
) -> None:
    """For any scales the bias comes back within half a step or one part in 2^23."""
    q = hs.quantize(torch.ones(2, 3), hs.int8, axis=axis, scale=w_scale, zero_point=0)
    fits, codes, scale = with_int32_bias(q, torch.tensor([bias, 0.0]), x_scale)
    wide = codes.double() * scale.double()
    assert abs(float(wide[0]) - bias) <= float(scale.max()) / 2 + abs(bias) * 2**-22
    assert wide[1] == 0
    assert fits.shape == q.shape


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (recipes.static_int8(), 13),
        (recipes.dynamic_int8(), 13),
        (recipes.weight_only(hs.int8), 13),
        (recipes.weight_only(hs.int4), 21),
        (recipes.weight_only(hs.int8, group_size=16), 21),
        ([hs.Rule("*", weight=hs.QSpec(hs.int8), input=hs.QSpec(hs.uint16))], 21),
    ],
)
def test_the_lowest_opset_that_holds_the_formats(rules: Any, expected: int) -> None:
    """13 for 8 bits and channels; 21 for 16 and 4 bits and for groups."""
    x = rand(4, 32)
    chosen = calibrated(net(nn.Linear(32, 8), nn.ReLU()), (x,), rules=rules)
    written = onnx_model(chosen.quantized, chosen.module)
    assert opset(written) == expected
    assert_equal_to_reference(chosen, written, x)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (recipes.weight_only(hs.int8, group_size=16), "0.weight has a scale for each group"),
        ([hs.Rule("*", weight=hs.QSpec(hs.int8), input=hs.QSpec(hs.uint16))], "16-bit integers"),
    ],
)
def test_an_opset_that_is_too_low_is_refused(rules: Any, message: str) -> None:
    """The error says what needs which version."""
    chosen = calibrated(net(nn.Linear(32, 8)), (rand(4, 32),), rules=rules)
    with pytest.raises(ArgumentError, match=f"{message}.*opset 21.*opset=13"):
        onnx_model(chosen.quantized, chosen.module, 13)


def test_rows_do_not_depend_on_their_neighbors() -> None:
    """Dynamic: a row alone gives what it gives beside a row a thousand times larger."""
    chosen = calibrated(
        net(nn.Linear(32, 8), nn.GELU(), nn.Linear(8, 4)),
        (rand(4, 32),),
        rules=recipes.dynamic_int8(),
    )
    written = onnx_model(chosen.quantized, chosen.module)
    assert operators(written)["MatMulInteger"] == 2
    assert operators(written)["DynamicQuantizeLinear"] == 0
    alone = rand(1, 32)
    both = torch.cat([alone, 1000 * rand(1, 32).flip(1)])
    inputs = [chosen.given((x,)) for x in (alone, both)]
    one, two = (run_onnx(written, chosen.quantized, each)[0] for each in inputs)
    assert torch.equal(one[0], two[0])


def test_a_narrow_format_is_cut_off() -> None:
    """QuantizeLinear fills 8 bits, so a format of 7 has a Clip before it."""
    seven = hs.QSpec(hs.uint8.within(0, 127))
    rules = [hs.Rule("*", weight=hs.QSpec(hs.int8), input=seven, output=seven)]
    x = rand(6, 16)
    chosen = calibrated(net(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4)), (x / 4,), rules=rules)
    written = onnx_model(chosen.quantized, chosen.module)
    assert operators(written)["Clip"] == 2
    inputs = chosen.given((x,))  # larger than in calibration: it saturates
    found = run_onnx(written, chosen.quantized, inputs)[0]
    by_hand = chosen.quantized.edges
    limit = max((e.qmax - e.zero_point) * e.scale for e in by_hand.values())
    assert found.abs().max() < 10 * limit


@pytest.mark.parametrize(("version", "text"), [(9, "from opset 13 on"), (99, "newest that onnx")])
def test_an_opset_that_does_not_exist_or_holds_no_channels_is_refused(
    version: int, text: str
) -> None:
    """In one line, before anything is written."""
    chosen = calibrated(net(nn.Linear(4, 2)), (rand(3, 4),))
    with pytest.raises(ArgumentError, match=text) as caught:
        onnx_model(chosen.quantized, chosen.module, version)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_another_precision_is_refused(dtype: torch.dtype) -> None:
    """Its file would mix types, which ONNX Runtime refuses and OpenVINO answers in float32."""
    x = rand(3, 4).to(dtype)
    moved = hs.deploy(hs.ptq.quantize(net(nn.Linear(4, 2)).to(dtype), x), "onnxruntime")
    with pytest.raises(ArgumentError, match=r"0\.weight stands for .*: quantize model\.float\(\)"):
        moved(x)
