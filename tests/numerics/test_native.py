"""The native kernels equal the plain-PyTorch formulas in every bit, whatever the processor."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.numerics import affine, blocks, learnable, native, packing
from tests.assertions import assert_same_bits
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS, SPECIALS, THOROUGH, Case, cases

pytestmark = pytest.mark.skipif(not native.is_loaded(), reason=f"no kernels: {native.why_not()}")

LEVELS = native.levels() or ("baseline",)
RUNNERS = st.tuples(st.sampled_from(LEVELS), st.integers(1, 3))
NON_FINITE = (*SPECIALS, math.nan)
Shape = tuple[int, ...]


@contextmanager
def running(level: str, threads: int) -> Iterator[None]:
    """Kernels of one instruction level on so many threads."""
    before = native.level(), torch.get_num_threads()
    native.use_level(level)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        native.use_level(str(before[0]))
        torch.set_num_threads(before[1])


def meaningful_strides(x: Tensor) -> list[int]:
    """The strides that decide where an element is."""
    pairs = zip(x.stride(), x.shape, strict=True) if x.numel() else []
    return [stride for stride, size in pairs if size > 1]


def assert_equal_results(
    kernel: Callable[..., Any], formula: Callable[..., Any], *args: object
) -> None:
    """Same results in every bit, and the same layout as the formula's."""
    actual, expected = kernel(*args), formula(*args)
    pairs = (
        zip(actual, expected, strict=True) if isinstance(actual, tuple) else [(actual, expected)]
    )
    for one, other in pairs:
        assert_same_bits(one, other)
        assert meaningful_strides(one) == meaningful_strides(other)


def assert_all_equal(
    x: Tensor, scale: Tensor, zero_point: Tensor, bounds: tuple[int, int], storage: torch.dtype
) -> None:
    """Every kernel that takes x and these qparams equals its formula."""
    assert_equal_results(native.quantize, affine.quantize, x, scale, zero_point, *bounds, storage)
    codes = affine.quantize(x, scale, zero_point, *bounds, storage)
    assert_equal_results(native.dequantize, affine.dequantize, codes, scale, zero_point, x.dtype)
    assert_equal_results(native.fake_quantize, affine.fake_quantize, x, scale, zero_point, *bounds)
    assert_equal_results(
        native.fake_quantize_with_mask,
        affine.fake_quantize_with_mask,
        x,
        scale,
        zero_point,
        *bounds,
    )
    assert_equal_results(native.min_max, blocks.min_max, x, scale.shape)


def assert_learnable_equal(
    grad: Tensor, x: Tensor, scale: Tensor, zero_point: Tensor, bounds: tuple[int, int]
) -> None:
    """The learnable kernels equal their formulas; zero points get a fraction to round."""
    args = x, scale, zero_point.float() + 0.3, *bounds, 0.7
    assert_equal_results(native.learnable_fake_quantize, learnable.learnable_fake_quantize, *args)
    assert_equal_results(
        native.learnable_fake_quantize_backward,
        learnable.learnable_fake_quantize_backward,
        grad,
        *args,
    )


# --- Drawn cases: small tensors of every kind ----------------------------------------------------


@THOROUGH
@given(cases(specials=NON_FINITE), RUNNERS)
def test_elementwise_kernels_equal_the_formulas(case: Case, runner: tuple[str, int]) -> None:
    """For every format, float dtype, memory format and special value."""
    with running(*runner):
        assert_all_equal(case.x, case.scale, case.zero_point, case.bounds, case.storage)


@THOROUGH
@given(cases(), st.sampled_from(FLOAT_DTYPES), st.sampled_from(sorted(MEMORY_FORMATS)), RUNNERS)
def test_dequantize_equals_the_formula(
    case: Case, dtype: torch.dtype, layout: str, runner: tuple[str, int]
) -> None:
    """For strided codes and every output dtype."""
    codes = affine.quantize(case.x, case.scale, case.zero_point, *case.bounds, case.storage)
    if codes.dtype != torch.uint16:  # which torch cannot copy in every layout
        codes = MEMORY_FORMATS[layout](codes)
    with running(*runner):
        assert_equal_results(
            native.dequantize, affine.dequantize, codes, case.scale, case.zero_point, dtype
        )


@THOROUGH
@given(cases(max_bits=16, specials=NON_FINITE), st.sampled_from(sorted(MEMORY_FORMATS)), RUNNERS)
def test_gradient_kernels_equal_the_formulas(
    case: Case, layout: str, runner: tuple[str, int]
) -> None:
    """Straight-through and learnable gradients, the gradient in a memory format of its own."""
    grad = MEMORY_FORMATS[layout](torch.randn(case.x.shape).to(case.x.dtype))
    mask = affine.fake_quantize_with_mask(case.x, case.scale, case.zero_point, *case.bounds)[1]
    with running(*runner):
        assert_equal_results(native.mask_gradient, affine.mask_gradient, grad, mask)
        assert_learnable_equal(grad, case.x, case.scale, case.zero_point, case.bounds)


@THOROUGH
@given(
    st.integers(0, 200),
    st.sampled_from([2, 4]),
    st.sampled_from([torch.int8, torch.uint8]),
    RUNNERS,
)
def test_packing_equals_the_formula(
    count: int, bits: int, dtype: torch.dtype, runner: tuple[str, int]
) -> None:
    """For every number of codes, whole bytes or not."""
    lowest = -(2 ** (bits - 1)) if dtype.is_signed else 0
    codes = torch.randint(lowest, lowest + 2**bits, (count,), dtype=dtype)
    with running(*runner):
        packed = native.pack(codes, bits)
        assert_same_bits(packed, packing.pack(codes, bits))
        assert_same_bits(native.unpack(packed, bits, dtype.is_signed, (count,)), codes)


# --- Large tensors: several tiles, several threads, each way to walk ------------------------------

# One scale; long runs; short runs in a table; a table longer than a tile; runs of different scales;
# short groups; a table per row (sliced); uneven tails.
WALKS: list[tuple[Shape, Shape, str]] = [
    ((70, 1003), (1, 1), "contiguous"),
    ((3, 5, 61, 67), (1, 5, 1, 1), "contiguous"),
    ((2, 3, 81, 83), (1, 3, 1, 1), "channels-last"),
    ((40, 37, 7, 7), (1, 37, 1, 1), "contiguous"),
    ((13, 4100), (1, 4100), "contiguous"),
    ((20, 4096), (20, 128), "contiguous"),
    ((9, 640, 9), (9, 5, 1), "permuted"),
    ((6, 8, 33, 35), (1, 8, 1, 1), "sliced"),
    ((5, 16, 40, 12), (5, 4, 40, 1), "expanded"),
]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("shape", "scale_shape", "layout"), WALKS)
def test_large_tensors_equal_the_formulas(
    level: str, threads: int, shape: Shape, scale_shape: Shape, layout: str
) -> None:
    """However the walk goes, and wherever threads divide it."""
    x = MEMORY_FORMATS[layout](torch.randn(shape) * 20)
    grad = MEMORY_FORMATS[layout](torch.randn(shape))
    scale = torch.rand(scale_shape) + 0.05
    zero_point = torch.randint(-20, 20, scale_shape, dtype=torch.int32)
    with running(level, threads):
        assert_all_equal(x, scale, zero_point, (-128, 127), torch.int8)
        assert_learnable_equal(grad, x, scale, zero_point, (-128, 127))


@pytest.mark.parametrize("level", LEVELS)
def test_results_written_around_the_caches_are_equal(level: str) -> None:
    """Outputs of more than 8 MB take streaming stores, also from a start that is not aligned."""
    x = (torch.randn(2203, 4001) * 20)[:, 3:]
    scale, zero_point = torch.rand(2203, 1) + 0.05, torch.zeros(2203, 1, dtype=torch.int32)
    with running(level, 2):
        for dtype in (torch.float32, torch.bfloat16):
            y = native.fake_quantize_with_mask(x.to(dtype), scale, zero_point, -128, 127)
            expected = affine.fake_quantize_with_mask(x.to(dtype), scale, zero_point, -128, 127)
            assert all(torch.equal(one, other) for one, other in zip(y, expected, strict=True))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_half_precision_number_is_read_and_written_right(
    level: str, dtype: torch.dtype
) -> None:
    """All 65,536 bit patterns as input; 16-bit codes times many scales as output."""
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    codes = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    zero = torch.zeros(1, dtype=torch.int32)
    with running(level, 1):
        for exponent in range(-40, 8, 3):
            scale = torch.tensor([1.37 * 2.0**exponent])
            assert_equal_results(
                native.fake_quantize, affine.fake_quantize, x, scale, zero, -128, 127
            )
            assert_equal_results(native.dequantize, affine.dequantize, codes, scale, zero, dtype)


def test_quotients_next_to_a_tie_round_as_true_division_does() -> None:
    """x / scale within an ulp of k + 1/2, where a multiplication by 1 / scale would go wrong."""
    scale = torch.rand(4000, 1) + 0.5
    halves = torch.arange(-8, 9) + 0.5
    x = (halves * scale).float()
    x = torch.cat([x, torch.nextafter(x, x + 1), torch.nextafter(x, x - 1)], dim=1)
    zero_point = torch.zeros(4000, 1, dtype=torch.int32)
    for level in LEVELS:
        with running(level, 2):
            assert_all_equal(x, scale, zero_point, (-128, 127), torch.int8)


@pytest.mark.parametrize("level", LEVELS)
def test_learned_gradients_do_not_depend_on_order(level: str) -> None:
    """Any number of threads and any memory format give the same bits."""
    x, grad = torch.randn(8, 24, 41, 43) * 9, torch.randn(8, 24, 41, 43)
    scale, zero_point = torch.rand(1, 24, 1, 1) + 0.1, torch.zeros(1, 24, 1, 1)
    results = []
    for layout in ("contiguous", "channels-last", "permuted"):
        for threads in (1, 2, 3):
            with running(level, threads):
                args = MEMORY_FORMATS[layout](grad), MEMORY_FORMATS[layout](x), scale, zero_point
                results.append(native.learnable_fake_quantize_backward(*args, -128, 127, 1.0)[1:])
    for result in results[1:]:
        assert_same_bits(result[0], results[0][0])
        assert_same_bits(result[1], results[0][1])


def test_inputs_are_left_alone() -> None:
    """No kernel writes to what it reads."""
    x, scale, zero = (
        torch.randn(64, 80),
        torch.rand(64, 1) + 0.1,
        torch.zeros(64, 1, dtype=torch.int32),
    )
    before = x.clone(), scale.clone()
    assert_all_equal(x, scale, zero, (-128, 127), torch.int8)
    assert_learnable_equal(x, x, scale, zero, (-128, 127))
    assert_same_bits(x, before[0])
    assert_same_bits(scale, before[1])


def test_wide_zero_points_dequantize_exactly() -> None:
    """q - zero_point beyond 24 bits is still an exact difference, rounded once."""
    codes = torch.tensor([-(2**31), -1, 0, 16777217, 2**31 - 1], dtype=torch.int32)
    scale, zero_point = torch.tensor([0.1]), torch.tensor([2**31 - 1], dtype=torch.int32)
    assert_equal_results(
        native.dequantize, affine.dequantize, codes, scale, zero_point, torch.float32
    )
    small = codes.clamp(-128, 127).to(torch.int8)
    zero_point = torch.tensor([2**24 + 1], dtype=torch.int32)
    assert_equal_results(
        native.dequantize, affine.dequantize, small, scale, zero_point, torch.float32
    )
