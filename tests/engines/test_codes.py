"""The torch engine's steps between codes equal their formulas in every bit."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

import halfstep as hs
from halfstep.graph.edges import Edge
from halfstep.numerics import native
from tests.engines.steps import LAYOUTS, Run, assert_equal, codes, edge
from tests.strategies import QUICK

if not native.is_loaded():
    pytest.skip("our kernels alone serve these steps", allow_module_level=True)

EDGES = (
    edge(hs.uint8, 0.05, 0),
    edge(hs.uint8, 0.037, 131),
    edge(hs.int8, 0.021, -7),
    edge(hs.uint8.within(3, 200), 0.1, 60),
)
EACH = st.sampled_from(EDGES)
OUTS = st.sampled_from([*EDGES, None])
LAYOUT = st.sampled_from(sorted(LAYOUTS))
SHAPES = (
    ((2, 5, 7, 6), (2, 5, 7, 6)),
    ((2, 70, 7, 6), (2, 70, 1, 1)),
    ((2, 1, 1, 1), (2, 5, 7, 6)),
    ((3, 4), ()),
    ((3, 1, 4), (5, 1)),
    ((0, 4), (0, 4)),
    ((2, 1100), (1100,)),
)


@given(
    kind=st.sampled_from(["add", "sub", "mul"]),
    shapes=st.sampled_from(SHAPES),
    edges=st.tuples(EACH, EACH, OUTS),
    layout=LAYOUT,
    activation=st.sampled_from([None, (0.0, None), (-1.0, 0.3)]),
    threads=st.sampled_from([1, 2]),
)
@QUICK
def test_sums_and_products(
    kind: str,
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    edges: tuple[Edge, Edge, Edge | None],
    layout: str,
    activation: tuple[float | None, float | None] | None,
    threads: int,
) -> None:
    """Shapes that broadcast, any layout, formats that differ, an activation."""
    torch.set_num_threads(threads)
    a, b = (codes(shape, of) for shape, of in zip(shapes, edges, strict=False))
    a = LAYOUTS[layout](a)
    given = (Run(a), edges[0], Run(b), edges[1], activation, edges[2])
    assert_equal(kind, *given)


def test_large_operands_use_all_threads() -> None:
    """A sum that is split between threads is that of one."""
    a, b = (codes((4, 64, 40, 40), of) for of in EDGES[:2])
    assert_equal("add", Run(a), EDGES[0], Run(b), EDGES[1], None, EDGES[2])


@given(
    parts=st.lists(EACH, min_size=1, max_size=3), out=OUTS, dim=st.integers(-4, 3), layout=LAYOUT
)
@QUICK
def test_cat(parts: list[Edge], out: Edge | None, dim: int, layout: str) -> None:
    """Along any dimension; parts of the result's format keep their codes."""
    if out is not None:
        parts = [part for part in parts if part.storage == out.storage] or [out]
    tensors = [LAYOUTS[layout](codes((2, 3, 4, 5), part)) for part in parts]
    assert_equal("cat", tuple(map(Run, tensors)), tuple(parts), dim, out)


def test_layouts_are_kept() -> None:
    """A sum of channels-last codes is channels-last, so that nothing is copied on the way."""
    from tests.engines.steps import bound  # noqa: PLC0415

    a = codes((2, 5, 7, 6), EDGES[0]).contiguous(memory_format=torch.channels_last)
    kernel, given = bound("add", Run(a), EDGES[0], Run(a), EDGES[0], None, EDGES[1])
    assert kernel is not None
    assert kernel.function(*given).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("layout", sorted(LAYOUTS))
@pytest.mark.parametrize("dtypes", [(torch.uint8, torch.int8), (torch.int8, torch.uint8)])
@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (2, 70, 9), (2, 5), (0, 5, 1)])
def test_tables(
    shape: tuple[int, ...], dtypes: tuple[torch.dtype, torch.dtype], layout: str
) -> None:
    """One table for all, and one for each channel."""
    x_edge = EDGES[0] if dtypes[0] == torch.uint8 else EDGES[2]
    x, bounds = LAYOUTS[layout](codes(shape, x_edge)), torch.iinfo(dtypes[1])
    for rows in ((), (shape[1],)):
        table = torch.randint(bounds.min, bounds.max + 1, (*rows, 256), dtype=dtypes[1])
        assert_equal("table", Run(x), table)


@pytest.mark.parametrize("of", EDGES, ids=str)
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_to_codes_and_back(layout: str, of: Edge) -> None:
    """Quantize near ties, dequantize to contiguous floats, clamp."""
    q = LAYOUTS[layout](codes((2, 5, 4, 6), of))
    assert_equal("dequantize", Run(q), of)
    x = (codes((2, 5, 4, 6), of).float() - of.zero_point + 0.5) * of.scale
    assert_equal("quantize", Run(LAYOUTS[layout](x)), of)
    assert_equal("clamp", Run(q), max(of.qmin, 5), 90)
