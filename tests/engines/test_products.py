"""Linear layers and convolutions of the torch engine equal their formulas in every integer."""

from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import halfstep as hs
from halfstep.engines import onednn
from halfstep.numerics import native
from tests.engines.steps import (
    LAYOUTS,
    SW,
    SX,
    SY,
    Run,
    assert_equal,
    bias,
    bound,
    codes,
    edge,
    weight,
)
from tests.strategies import QUICK

if not native.is_loaded() and not onednn.is_there():
    pytest.skip("nothing but the formulas is here", allow_module_level=True)
needs_kernels = pytest.mark.skipif(not native.is_loaded(), reason="our kernels alone serve this")

ACTIVATIONS = (None, (0.0, None), (0.0, 6 * SY), (-3 * SY, 3 * SY))
UINT8 = edge(hs.uint8, SY, 100)
INT8 = edge(hs.int8, SY, -7)
OUTS = (UINT8, None, INT8) if native.is_loaded() else (UINT8, None)
X_EDGES = (edge(), edge(hs.uint8, SX, 0), edge(hs.int8, SX, -5))


@st.composite
def convolutions(draw: st.DrawFn) -> dict[str, Any]:
    """Every kind of convolution, with an input that it fits."""
    spatial = draw(st.integers(1, 3))
    kind = draw(st.sampled_from(["dense", "grouped", "depthwise"]))
    channels = draw(st.sampled_from([1, 3, 4, 16, 20, 66]))
    groups = {"dense": 1, "grouped": 1 if channels % 2 else 2, "depthwise": channels}[kind]
    outputs = channels if kind == "depthwise" else groups * draw(st.integers(1, 40))
    kernel = tuple(draw(st.integers(1, 3)) for _ in range(spatial))
    dilation = tuple(draw(st.integers(1, 2)) for _ in range(spatial))
    stride = tuple(draw(st.integers(1, 3)) for _ in range(spatial))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    sizes = tuple(
        (k - 1) * d + 1 + draw(st.integers(0, 5)) for k, d in zip(kernel, dilation, strict=True)
    )
    torch.manual_seed(draw(st.integers(0, 2**16)))
    ties = draw(st.booleans())
    return {
        "x_edge": draw(st.sampled_from(X_EDGES)),
        "shape": (draw(st.integers(1, 3)), channels, *sizes),
        "weight": weight((outputs, channels // groups, *kernel), near_ties=ties),
        "bias": draw(st.sampled_from([None, bias(outputs)])),
        "window": (stride, padding, dilation),
        "groups": groups,
        "ties": ties,
        "layout": LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))],
        "activation": draw(st.sampled_from(ACTIVATIONS)),
        "out": draw(st.sampled_from(OUTS)),
        "threads": draw(st.sampled_from([1, 2])),
    }


def check_conv(case: dict[str, Any]) -> None:
    """One case without a residual."""
    x = case["layout"](codes(case["shape"], case["x_edge"], near_ties=case["ties"]))
    torch.set_num_threads(case["threads"])
    assert_equal(
        *("conv", Run(x), case["x_edge"], case["weight"], case["bias"], *case["window"]),
        *(case["groups"], None, None, case["activation"], case["out"]),
    )


@given(case=convolutions())
@QUICK
def test_convolutions(case: dict[str, Any]) -> None:
    """1 to 3 dimensions, any groups, stride, padding, dilation, layout, zero point, output."""
    check_conv(case)


@pytest.mark.parametrize("out", [UINT8, edge(hs.uint8, SY, 0)], ids=str)
@pytest.mark.parametrize("groups", [1, 32])
@pytest.mark.parametrize("kernel", [1, 3])
def test_residual_is_one_rounding(kernel: int, groups: int, out: Any) -> None:
    """A sum that is added before requantizing, near ties: fma, and the residual stays as it was."""
    torch.manual_seed(0)
    x, held = codes((2, 32, 9, 9), edge(), near_ties=True), codes((2, 32, 9, 9), UINT8)
    before = held.clone()
    window = ((1, 1), (kernel // 2,) * 2, (1, 1), groups)
    w = weight((32, 32 // groups, kernel, kernel), near_ties=True)
    for residual_edge in (edge(hs.uint8, 0.7 * SX, 5), edge(hs.uint8, SY / 2, 128)):
        rest = (Run(held), residual_edge, (0.0, None), out)
        assert_equal("conv", Run(x), edge(), w, bias(32), *window, *rest)
    assert torch.equal(held, before)


@pytest.mark.parametrize("out", OUTS, ids=str)
@pytest.mark.parametrize("x_edge", X_EDGES, ids=str)
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("rows", [(), (1,), (5, 3), (64,), (0,)])
def test_linear(rows: tuple[int, ...], axis: int | None, x_edge: Any, out: Any) -> None:
    """Any number of rows, near ties and over all codes, one scale or one for each output."""
    torch.manual_seed(0)
    for ties in (True, False):
        x = codes((*rows, 50), x_edge, near_ties=ties)
        w = weight((37, 50), axis, near_ties=ties)
        for activation in ACTIVATIONS:
            assert_equal("linear", Run(x), x_edge, w, bias(37), None, None, activation, out)


@needs_kernels
def test_linear_with_a_residual() -> None:
    """The residual of a linear layer, by fma."""
    torch.manual_seed(0)
    x, held = codes((8, 48), edge(), near_ties=True), codes((8, 33), UINT8)
    w, residual = weight((33, 48), near_ties=True), edge(hs.uint8, 0.7 * SX, 5)
    assert_equal("linear", Run(x), edge(), w, None, Run(held), residual, None, UINT8)


@needs_kernels
@pytest.mark.parametrize("x_edge", X_EDGES, ids=str)
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("sides", [(1, 0, 0, 1), (2, 1, 1, 1), (3, 1, 2, 2)])
def test_transposed_convolutions(sides: tuple[int, ...], groups: int, x_edge: Any) -> None:
    """Stride, padding, output padding, dilation and groups, one scale for each output channel."""
    torch.manual_seed(0)
    stride, padding, extra, dilation = ((side, side) for side in sides)
    x, w = codes((2, 8, 5, 4), x_edge), weight((8, 12 // groups, 3, 3), 1)
    window = (stride, padding, extra, groups, dilation)
    for out in OUTS:
        assert_equal("conv_transpose", Run(x), x_edge, w, bias(12), *window, None, None, None, out)


@needs_kernels
def test_samples_without_a_batch() -> None:
    """A convolution of (C, H, W) gives (O, H, W)."""
    x, w = codes((3, 8, 8), edge()), weight((5, 3, 3, 3))
    sides = ((1, 1), (1, 1), (1, 1), 1)
    for out in OUTS:
        assert_equal("conv", Run(x), edge(), w, None, *sides, None, None, None, out)


def test_the_largest_sums() -> None:
    """All activations 255 and all weights 127 or -127, over a long axis: nothing saturates."""
    x = torch.full((3, 4096), 255, dtype=torch.uint8)
    ints = torch.full((32, 4096), 127, dtype=torch.int8)
    ints[1::2] = -127
    w = hs.from_int_repr(ints, hs.QSpec(hs.int8, symmetric=True), scale=SW)
    zero = edge(hs.uint8, SX, 0)
    assert_equal("linear", Run(x), zero, w, None, None, None, None, None)
    image, kernel = x.view(3, 256, 4, 4), w.view(32, 256, 4, 4)
    sides = ((1, 1), (0, 0), (1, 1), 1, None, None, None, None)
    assert_equal("conv", Run(image), zero, kernel, None, *sides)


@needs_kernels
def test_sums_beyond_32_bits_are_left_to_the_formula() -> None:
    """A weight whose sums 32 bits may not hold has no kernel."""
    ints = torch.full((1, 70_000), 127, dtype=torch.int8)
    w = hs.from_int_repr(ints, hs.QSpec(hs.int8, symmetric=True), scale=SW)
    x = Run(torch.zeros(1, 70_000, dtype=torch.uint8))
    assert bound("linear", x, edge(), w, None, None, None, None, None)[0] is None


@needs_kernels
@pytest.mark.parametrize("dtype", [hs.uint4, hs.int4, hs.uint8])
def test_affine_weights(dtype: hs.QDType) -> None:
    """Weights with zero points, as long as what they stand for fits into int8."""
    torch.manual_seed(0)
    w = hs.quantize(torch.randn(20, 36), hs.QSpec(dtype, hs.PerChannel(0)))
    centred = w.int_repr().int() - w.zero_point
    args = (Run(codes((5, 36), edge())), edge(), w, None, None, None, None, UINT8)
    if centred.min() < -128 or centred.max() > 127:
        assert bound("linear", *args)[0] is None
    else:
        assert_equal("linear", *args)


def test_weights_per_group_are_left_to_the_formula() -> None:
    """Groups are finished one by one, which no kernel does."""
    w = hs.quantize(torch.randn(8, 64), hs.QSpec(hs.int8, hs.PerGroup(1, 32), symmetric=True))
    args = (Run(codes((5, 64), edge())), edge(), w, None, None, None, None, UINT8)
    assert bound("linear", *args)[0] is None


@needs_kernels
@pytest.mark.parametrize("out", OUTS, ids=str)
@pytest.mark.parametrize("b_edge", [edge(hs.uint8, SW, 9), edge(hs.int8, SW, 0)], ids=str)
@pytest.mark.parametrize(
    "shapes",
    [
        ((5, 16), (16, 20)),
        ((2, 3, 7, 18), (2, 3, 18, 5)),
        ((2, 3, 30, 64), (3, 64, 33)),
        ((4, 6), (2, 6, 3)),
        ((9,), (9,)),
        ((3, 4, 9), (9,)),
        ((9,), (2, 9, 5)),
        ((2, 0, 4), (2, 4, 3)),
    ],
)
def test_products_of_codes(shapes: Any, b_edge: Any, out: Any) -> None:
    """Any ranks and zero points, batches that broadcast, a transposed operand."""
    torch.manual_seed(0)
    for a_edge in X_EDGES:
        for ties in (True, False):
            a, b = (
                codes(shapes[0], a_edge, near_ties=ties),
                codes(shapes[1], b_edge, near_ties=ties),
            )
            assert_equal("matmul", Run(a), a_edge, Run(b), b_edge, out)
    if b.ndim > 1:
        turned = b.transpose(-1, -2).contiguous().transpose(-1, -2)
        assert_equal("matmul", Run(a), a_edge, Run(turned), b_edge, out)
