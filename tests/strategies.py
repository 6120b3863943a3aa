"""The one home of Hypothesis strategies: formats, shapes, tensors and what makes them hard.

Values are drawn in steps, ``x = steps * scale``, so that ties, saturation and both sides of zero
come up whatever the scale. Tensors are filled from a drawn seed, which keeps examples cheap; drawn
specials are then written over some positions.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import hypothesis.strategies as st
import torch
from hypothesis import HealthCheck, settings
from torch import Tensor

from halfstep.graph.edges import Edge
from halfstep.spec import (
    Granularity,
    PerChannel,
    PerGroup,
    PerTensor,
    PerToken,
    QDType,
    QSpec,
)
from halfstep.tensor import QTensor, quantize
from tests.operand import Operand

Shape: TypeAlias = tuple[int, ...]

# The same examples in every run, no time limit for one (the machine may be busy).
QUICK = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
THOROUGH = settings(QUICK, max_examples=300)

DTYPES = tuple(
    QDType.parse(name)
    for name in (
        *(f"{sign}int{bits}" for bits in (2, 3, 4, 5, 6, 7, 8, 16) for sign in ("", "u")),
        "int32",
    )
)
FLOAT_DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SPECIALS = (0.0, -0.0, math.inf, -math.inf, 1e-45, -1e-45, 1.2e-38, 3.4e38, -3.4e38)


@dataclass(frozen=True)
class Case:
    """A tensor and qparams that fit it: ``scale`` and ``zero_point`` have all of x's dimensions."""

    x: Tensor
    spec: QSpec
    scale: Tensor
    zero_point: Tensor

    @property
    def bounds(self) -> tuple[int, int]:
        """(qmin, qmax)."""
        return self.spec.qmin, self.spec.qmax

    @property
    def storage(self) -> torch.dtype:
        """The dtype of the codes."""
        return self.spec.dtype.storage


def repeated(qparam: Tensor, shape: Shape) -> Tensor:
    """A scale or zero point with one value per element of ``shape``, by indexing."""
    for dim, (size, groups) in enumerate(zip(shape, qparam.shape, strict=True)):
        qparam = qparam.index_select(dim, torch.arange(size) * groups // max(size, 1))
    return qparam


# --- Formats -----------------------------------------------------------------------------------


@st.composite
def dtypes(draw: st.DrawFn, max_bits: int = 32) -> QDType:
    """Every integer format of at most so many bits, sometimes with narrower bounds."""
    dtype = draw(st.sampled_from([dtype for dtype in DTYPES if dtype.bits <= max_bits]))
    if draw(st.integers(0, 3)):
        return dtype
    qmin = draw(st.integers(dtype.lowest, dtype.highest - 1))
    return dtype.within(qmin, draw(st.integers(qmin + 1, dtype.highest)))


def shapes(min_dims: int = 0, max_dims: int = 5, min_side: int = 0) -> st.SearchStrategy[Shape]:
    """Shapes of few elements, zero-size and 0-dimensional ones included."""
    return st.lists(st.integers(min_side, 6), min_size=min_dims, max_size=max_dims).map(tuple)


@st.composite
def granularities(draw: st.DrawFn, shape: Shape) -> Granularity:
    """A granularity that fits a tensor of this shape; axes from the front or from the back."""
    if not shape:
        return PerTensor()
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = [n for n in range(1, shape[axis] + 1) if shape[axis] % n == 0] or [1, 2]
    size = draw(st.sampled_from(sizes))
    fitting: tuple[Granularity, ...] = (
        PerTensor(),
        PerChannel(axis),
        PerGroup(axis, size),
        PerToken(),
    )
    return draw(st.sampled_from(fitting))


@st.composite
def specs(
    draw: st.DrawFn, shape: Shape, *, max_bits: int = 32, float_zero_point: bool | None = None
) -> QSpec:
    """Every legal QSpec for a tensor of this shape; ``float_zero_point`` asks for one form only."""
    if float_zero_point is None:
        float_zero_point = draw(st.integers(0, 4)) == 0
    dtype = draw(dtypes(min(8, max_bits) if float_zero_point else max_bits))
    granularity = draw(granularities(shape))
    if float_zero_point:
        return QSpec(dtype, granularity, float_zero_point=True)
    symmetric = dtype.qmin < 0 < dtype.qmax and draw(st.booleans())
    narrow = dtype.signed and dtype.is_full and draw(st.booleans())
    return QSpec(dtype, granularity, symmetric=symmetric, narrow_range=narrow)


# --- Memory formats ----------------------------------------------------------------------------


def _channels_last(x: Tensor) -> Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return x.contiguous(memory_format=formats[x.ndim]) if x.ndim in formats else x.contiguous()


def _permuted(x: Tensor) -> Tensor:
    back = tuple(range(x.ndim))[::-1]
    return x.permute(back).contiguous().permute(back)


def _sliced(x: Tensor) -> Tensor:
    """Every second element of a larger tensor, along each dimension."""
    larger = x.new_full(tuple(2 * n + 1 for n in x.shape), 7.0)
    view = larger[tuple(slice(1, 2 * n + 1, 2) for n in x.shape)]
    view.copy_(x)
    return view


def _expanded(x: Tensor) -> Tensor:
    """The first index of the first dimension for all of it: other values, stride 0."""
    return x[:1].expand(x.shape) if x.ndim else x


MEMORY_FORMATS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": Tensor.contiguous,
    "channels-last": _channels_last,
    "permuted": _permuted,
    "sliced": _sliced,
    "expanded": _expanded,
}


# --- Values ------------------------------------------------------------------------------------


@st.composite
def float_tensors(
    draw: st.DrawFn, shape: Shape, *, specials: tuple[float, ...] = SPECIALS
) -> Tensor:
    """A float32 tensor over many magnitudes, with some of the specials in it."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    x = torch.randn(shape, generator=generator)
    x *= torch.exp2(torch.randint(-4, 5, shape, generator=generator).float())
    return _write_over(
        x, draw(st.lists(st.sampled_from(specials or (0.0,)), max_size=4)), generator
    )


def _write_over(x: Tensor, values: list[float], generator: torch.Generator) -> Tensor:
    x = x.clone()
    for value in values if x.numel() else []:
        x.view(-1)[int(torch.randint(x.numel(), (), generator=generator))] = value
    return x


def _steps(shape: Shape, spec: QSpec, zero_point: Tensor, generator: torch.Generator) -> Tensor:
    """Distances from zero in steps: anywhere, small halves (near ties), and the two edges."""
    low = spec.qmin - zero_point.double() - 3
    high = spec.qmax - zero_point.double() + 3
    anywhere = low + (high - low) * torch.rand(shape, generator=generator, dtype=torch.float64)
    halves = torch.randint(-9, 10, shape, generator=generator) / 2
    edges = torch.where(torch.rand(shape, generator=generator) < 0.5, low + 2.5, high - 2.5)
    kind = torch.randint(3, shape, generator=generator)
    return torch.where(kind == 0, anywhere, torch.where(kind == 1, halves.double(), edges))


def _nudged(x: Tensor, generator: torch.Generator) -> Tensor:
    """Each value, or the float next to it on either side."""
    way = torch.randint(-1, 2, x.shape, generator=generator)
    towards = torch.where(way == 0, x, torch.where(way < 0, -math.inf, math.inf))
    return torch.nextafter(x, towards)


@st.composite
def qparams(draw: st.DrawFn, shape: Shape, spec: QSpec) -> tuple[Tensor, Tensor]:
    """Scale and zero point with all dimensions: many magnitudes, zero points over all codes."""
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    wanted = spec.granularity.scale_shape(shape)
    low = draw(st.sampled_from([-30, -8, -1]))
    exponents = torch.randint(low, low + 6, wanted, generator=generator).float()
    scale = torch.exp2(exponents)
    if draw(st.booleans()):
        scale = scale * (1 + torch.rand(wanted, generator=generator))
    codes = torch.randint(spec.qmin, spec.qmax + 1, wanted, generator=generator)
    if spec.symmetric:
        codes = torch.zeros_like(codes)
    if spec.float_zero_point:
        return scale, codes.float() + torch.rand(wanted, generator=generator)
    return scale, codes.to(torch.int32)


@st.composite
def cases(
    draw: st.DrawFn,
    *,
    max_bits: int = 32,
    float_zero_point: bool | None = None,
    specials: tuple[float, ...] = SPECIALS,
    x_dtypes: tuple[torch.dtype, ...] = FLOAT_DTYPES,
    min_side: int = 0,
) -> Case:
    """A tensor of any float dtype, shape and memory format, with a format and qparams that fit."""
    shape = draw(shapes(min_side=min_side))
    spec = draw(specs(shape, max_bits=max_bits, float_zero_point=float_zero_point))
    spec = spec.normalized(len(shape))
    scale, zero_point = draw(qparams(shape, spec))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    steps = _steps(shape, spec, repeated(zero_point, shape), generator)
    x = _nudged((steps * repeated(scale, shape)).float(), generator)
    x = _write_over(x, draw(st.lists(st.sampled_from(specials or (0.0,)), max_size=4)), generator)
    layout = MEMORY_FORMATS[draw(st.sampled_from(sorted(MEMORY_FORMATS)))]
    return Case(layout(x.to(draw(st.sampled_from(x_dtypes)))), spec, scale, zero_point)


def any_float32() -> st.SearchStrategy[float]:
    """Every float32 there is: subnormals, infinities and NaN too."""
    specials = torch.tensor([*SPECIALS, math.nan]).tolist()
    return st.floats(width=32) | st.sampled_from(specials)


@st.composite
def qtensors(
    draw: st.DrawFn, *, max_bits: int = 32, float_zero_point: bool | None = None, min_side: int = 0
) -> QTensor:
    """A quantized tensor of any format, shape, float dtype and memory format, drawn qparams."""
    case = draw(cases(max_bits=max_bits, float_zero_point=float_zero_point, min_side=min_side))
    return quantize(case.x, case.spec, scale=case.scale, zero_point=case.zero_point)


# --- Codes of one scale, as they run between steps -----------------------------------------------


@st.composite
def edges(draw: st.DrawFn, max_bits: int = 16) -> Edge:
    """A format between steps, with one scale and a zero point anywhere in it."""
    spec = QSpec(draw(dtypes(max_bits)))
    scale, zero_point = draw(qparams((), spec))
    return Edge(spec, scale.item(), int(zero_point))


@st.composite
def operands(draw: st.DrawFn, shape: Shape, max_bits: int = 16) -> Operand:
    """Codes over a whole format, in any memory format; the scale is of moderate size."""
    spec = QSpec(draw(dtypes(max_bits)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    q = torch.randint(spec.qmin, spec.qmax + 1, shape, generator=generator)
    layout = MEMORY_FORMATS[draw(st.sampled_from(sorted(MEMORY_FORMATS)))]
    ones = (1,) * len(shape)
    scale = torch.rand(ones, generator=generator) * 0.1 + 0.01
    zero_point = torch.randint(spec.qmin, spec.qmax + 1, ones, generator=generator).int()
    return Operand(layout(q).to(spec.dtype.storage), scale, zero_point)
