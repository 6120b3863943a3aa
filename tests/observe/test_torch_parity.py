"""Side by side with torch.ao.quantization, where the definitions agree.

They differ, on purpose, in these points, so the tests stay clear of them or allow for them:

- torch.ao divides in float32 and widens a scale below 2^-23 to it; here scale comes from float64
  and may be as small as 2^-126.
- A symmetric scale there is max(|lo|, |hi|) / ((qmax - qmin) / 2), here max(|lo| / -qmin,
  |hi| / qmax): one step of -128 to 127 is used, not half a step of 255.
- torch.ao's histogram rebins when the range grows, so it depends on the order; here it does not.
- NaN is taken in silently there, and is an error here.
- The fused module there takes channels on axis 0 only, here on any.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from halfstep.numerics import fake_quantize
from halfstep.observe import (
    FakeQuantize,
    HistogramObserver,
    MinMaxObserver,
    MovingAverageObserver,
)
from halfstep.spec import PerChannel, QSpec, int8, uint8


@pytest.fixture(name="ao")
def _ao() -> Iterator[Any]:
    """torch.ao.quantization, where torch still has it, its deprecation warnings switched off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield pytest.importorskip("torch.ao.quantization")


def batches(count: int = 4) -> list[torch.Tensor]:
    """Activations (N, 3, 5) that move and grow."""
    return [torch.randn(8, 3, 5) * (1 + step) + 0.3 * step for step in range(count)]


def test_min_max_agrees(ao: Any) -> None:
    """The same range in every bit, and the same affine scale to float32's rounding."""
    ours, theirs = MinMaxObserver(uint8), ao.MinMaxObserver(dtype=torch.quint8)
    for batch in batches():
        ours(batch), theirs(batch)
    assert (ours.min_val.item(), ours.max_val.item()) == (theirs.min_val, theirs.max_val)
    scale, zero_point = theirs.calculate_qparams()
    assert torch.allclose(ours.qparams()[0], scale, rtol=1e-6)
    assert torch.equal(ours.qparams()[1].flatten(), zero_point)


def test_per_channel_min_max_agrees(ao: Any) -> None:
    """The same range of each channel in every bit."""
    ours = MinMaxObserver(QSpec(int8, PerChannel(1)))
    theirs = ao.PerChannelMinMaxObserver(ch_axis=1, dtype=torch.qint8)
    for batch in batches():
        ours(batch), theirs(batch)
    assert torch.equal(ours.min_val.flatten(), theirs.min_val)
    assert torch.equal(ours.max_val.flatten(), theirs.max_val)
    assert torch.allclose(ours.qparams()[0].flatten(), theirs.calculate_qparams()[0], rtol=1e-6)


def test_moving_average_agrees(ao: Any) -> None:
    """The same average of minima and maxima, in every bit."""
    ours = MovingAverageObserver(uint8, momentum=0.1)
    theirs = ao.MovingAverageMinMaxObserver(averaging_constant=0.1)
    for batch in batches():
        ours(batch), theirs(batch)
    assert (ours.min_val.item(), ours.max_val.item()) == (theirs.min_val, theirs.max_val)


def test_histogram_loses_no_more(ao: Any) -> None:
    """The range chosen here has at most the squared error of torch.ao's, and is near it."""
    ours, theirs = HistogramObserver(uint8), ao.HistogramObserver(dtype=torch.quint8)
    data = torch.cat([torch.randn(20_000), torch.tensor([9.0, -7.0])])
    ours(data), theirs(data)
    errors = []
    for scale, zero_point in (ours.qparams(), theirs.calculate_qparams()):
        y = fake_quantize(data, uint8, scale=scale, zero_point=zero_point)
        errors.append((y - data).square().mean().item())
    assert errors[0] <= errors[1] * 1.001


@pytest.mark.parametrize("axis", [None, 0])
def test_fake_quantize_module_agrees(ao: Any, axis: int | None) -> None:
    """Over several batches the output is that of FusedMovingAvgObsFakeQuantize, within a step."""
    per_channel = axis is not None
    spec = QSpec(int8, PerChannel(0) if per_channel else None)
    ours = FakeQuantize(MovingAverageObserver(spec, momentum=0.01))
    observer = (
        ao.MovingAveragePerChannelMinMaxObserver if per_channel else ao.MovingAverageMinMaxObserver
    )
    scheme = torch.per_channel_affine if per_channel else torch.per_tensor_affine
    theirs = ao.FusedMovingAvgObsFakeQuantize(
        observer,
        quant_min=-128,
        quant_max=127,
        dtype=torch.qint8,
        qscheme=scheme,
        **({"ch_axis": 0} if per_channel else {}),
    )
    for batch in batches():
        y, other = ours(batch), theirs(batch)
    step = ours.qparams()[0].max().item()
    assert (y - other).abs().max().item() <= 1.01 * step
    assert ((y - other).abs() > 1e-5).float().mean() < 0.01
