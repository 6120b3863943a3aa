"""The native products are exact at every instruction level, for codes of every kind."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from halfstep.numerics import native, ops
from halfstep.numerics.native_codes import Codes, Finish
from halfstep.numerics.native_products import Geometry, Multiply, Product, pack
from tests.assertions import assert_same_bits

if not native.is_loaded():
    pytest.skip("without native kernels", allow_module_level=True)

SCALE = 0.0123
CODES = (Codes(torch.uint8, 0.037, 3), Codes(torch.int8, 0.037, -5))
# Channels, outputs, groups, kernel: whole and broken blocks of channels and of outputs.
CONVS = [
    (16, 64, 1, 1),
    (13, 21, 1, 1),
    (3, 32, 1, 3),
    (16, 70, 1, 3),
    (16, 32, 4, 3),
    (32, 32, 32, 3),
    (90, 90, 90, 3),
    (130, 130, 130, 5),
]


@pytest.fixture(params=native.levels())
def level(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each level in turn, and the best one again in the end."""
    native.use_level(request.param)
    yield request.param
    native.use_level(native.levels()[0])


def all_codes(shape: tuple[int, ...], of: Codes) -> Tensor:
    """Codes over the whole range."""
    bounds = torch.iinfo(of.dtype)
    return torch.randint(bounds.min, bounds.max + 1, shape).to(of.dtype)


def qparams(of: Codes, ndim: int) -> tuple[Tensor, Tensor]:
    """Scale and zero point with all dimensions."""
    ones = (1,) * ndim
    return torch.full(ones, of.scale), torch.full(ones, of.zero_point, dtype=torch.int32)


@pytest.mark.parametrize("x_codes", CODES, ids=str)
@pytest.mark.parametrize("sizes", CONVS, ids=str)
def test_convolutions(sizes: tuple[int, ...], x_codes: Codes, level: str) -> None:
    """Floats bit for bit, and codes, dense, grouped and depthwise."""
    torch.manual_seed(0)
    channels, outputs, groups, kernel = sizes
    x = all_codes((2, channels, 7, 6), x_codes)
    w = torch.randint(-128, 128, (outputs, channels // groups, kernel, kernel), dtype=torch.int8)
    scale, zeros = torch.full((outputs,), SCALE), torch.zeros(outputs, dtype=torch.int32)
    bias, sides = torch.randn(outputs), ((2, 1), (kernel // 2, 0), (1, 1))
    each = (-1, 1, 1, 1)
    y = ops.conv(
        *(x, *qparams(x_codes, 4), w, scale.view(each), zeros.view(each), bias, *sides, groups)
    )
    taps = w.reshape(groups, outputs // groups, channels // groups, -1).transpose(2, 3)
    packed = pack(taps, scale, zeros, bias)
    assert packed is not None
    geometry = Geometry((kernel, kernel), *sides)
    got = Product(packed, geometry, x_codes, None, Finish(torch.float32)).conv(x)
    assert_same_bits(got, y)
    out = Codes(torch.uint8, 5.0, 100)
    finish = Finish(out.dtype, out.scale, out.zero_point, 0, 255)
    got = Product(packed, geometry, x_codes, None, finish).conv(x)
    assert torch.equal(got, ops.requantize(y, *qparams(out, 4), 0, 255, torch.uint8))


@pytest.mark.parametrize("b_codes", CODES, ids=str)
@pytest.mark.parametrize("a_codes", CODES, ids=str)
def test_matrices_of_codes(a_codes: Codes, b_codes: Codes, level: str) -> None:
    """Both operands with zero points; whole and broken steps along what is summed."""
    torch.manual_seed(0)
    for rows, inner, columns in ((5, 8, 16), (13, 37, 50), (1, 3, 1)):
        a, b = all_codes((3, rows, inner), a_codes), all_codes((3, inner, columns), b_codes)
        got = Multiply(a_codes, b_codes, Finish(torch.float32))(a, b)
        want = ops.matmul(a, *qparams(a_codes, 3), b, *qparams(b_codes, 3))
        assert got is not None
        assert_same_bits(got, want)
