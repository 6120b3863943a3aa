"""The torch engine's means and maxima equal their formulas in every bit."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import assume, given

import halfstep as hs
from halfstep.graph.edges import Edge
from halfstep.numerics import native
from tests.engines.steps import LAYOUTS, Run, assert_equal, codes, edge
from tests.strategies import QUICK

if not native.is_loaded():
    pytest.skip("our kernels alone serve these steps", allow_module_level=True)

EDGES = st.sampled_from([edge(hs.uint8, 0.05, 131), edge(hs.int8, 0.021, -7)])
OUTS = st.sampled_from([edge(hs.uint8, 0.04, 120), edge(hs.int8, 0.02, 3), None])
LAYOUT = st.sampled_from(sorted(LAYOUTS))


@given(
    x_edge=EDGES,
    out=OUTS,
    layout=LAYOUT,
    sizes=st.lists(st.integers(3, 9), min_size=1, max_size=3),
    channels=st.sampled_from([1, 5, 64, 70]),
    side=st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 1), st.integers(1, 2)),
    flags=st.tuples(st.booleans(), st.booleans()),
    divisor=st.sampled_from([None, 3]),
)
@QUICK
def test_sliding_windows(
    x_edge: Edge,
    out: Edge | None,
    layout: str,
    sizes: list[int],
    channels: int,
    side: tuple[int, int, int, int],
    flags: tuple[bool, bool],
    divisor: int | None,
) -> None:
    """Every kernel, stride, padding, dilation and rounding of the number of windows."""
    kernel, stride, padding, dilation = side
    assume(padding <= kernel // 2)
    assume((kernel - 1) * dilation + 1 <= min(sizes))
    x = Run(LAYOUTS[layout](codes((2, channels, *sizes), x_edge)))
    many = ((value,) * len(sizes) for value in (kernel, stride, padding, dilation))
    kernels, strides, paddings, dilations = many
    assert_equal("max_pool", x, kernels, strides, paddings, dilations, flags[0])
    assert_equal("avg_pool", x, x_edge, kernels, strides, paddings, *flags, divisor, out)


@given(
    x_edge=EDGES,
    out=OUTS,
    layout=LAYOUT,
    sizes=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 5)), min_size=1, max_size=3),
)
@QUICK
def test_adaptive_windows(
    x_edge: Edge, out: Edge | None, layout: str, sizes: list[tuple[int, int]]
) -> None:
    """Windows that overlap, repeat or cover everything; None keeps a dimension."""
    shape, size = zip(*sizes, strict=True)
    x = Run(LAYOUTS[layout](codes((2, 5, *shape), x_edge)))
    assert_equal("adaptive_max_pool", x, size)
    assert_equal("adaptive_avg_pool", x, x_edge, size, out)
    assert_equal("adaptive_avg_pool", x, x_edge, (None, *size[1:]), out)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("dims", [(2, 3), (-1,), (1,), (0, 2), (3, 1), (), None])
def test_means(dims: tuple[int, ...] | None, layout: str) -> None:
    """Over any dimensions, with and without keeping them."""
    torch.manual_seed(0)
    x_edge, out = edge(hs.uint8, 0.05, 131), edge(hs.int8, 0.002, -3)
    x = Run(LAYOUTS[layout](codes((2, 70, 7, 6), x_edge)))
    for keep in (True, False):
        for to in (out, None):
            assert_equal("mean", x, x_edge, dims, keep, to)
