"""A border is what padding the floats gives, in codes where the format has them."""

import pytest
import torch
import torch.nn.functional as F

import halfstep as hs
from halfstep import GranularityError, PerChannel, PerGroup, PerToken, QSpec, QTensor

X = torch.randn(2, 4, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "spec", [QSpec(hs.uint8), QSpec(hs.int4, PerChannel(1)), QSpec(hs.uint16, PerToken())]
)
@pytest.mark.parametrize("pad", [(1, 2), (0, 0, 1, 1), (-1, 2), (0, -3), (0, 0, 0, 0, 1, 0)])
def test_zeros_are_exact(spec: QSpec, pad: tuple[int, ...]) -> None:
    """Padding with 0 keeps the integers and gives exact zeros, also in new channels."""
    q = hs.quantize(X, spec)
    padded = F.pad(q, pad)
    assert isinstance(padded, QTensor)
    assert torch.equal(padded.dequantize(), F.pad(q.dequantize(), pad))
    assert padded.spec == q.spec


def test_new_channels_have_scale_one() -> None:
    """Channels that padding adds have scale 1 and only zeros."""
    q = hs.quantize(X, hs.int8, axis=1)
    padded = F.pad(q, (0, 0, 1, 0))
    assert isinstance(padded, QTensor)
    assert padded.q_per_channel_scales()[0] == 1
    assert torch.equal(padded.q_per_channel_scales()[1:], q.q_per_channel_scales())


def test_other_values_take_the_nearest_code() -> None:
    """A value inside the range keeps the qparams; one beyond it gets new ones; both half a step."""
    q = hs.quantize(X, hs.int8)
    near, far = F.pad(q, (1, 1), value=0.3), F.pad(q, (1, 1), value=50.0)
    assert isinstance(near, QTensor)
    assert isinstance(far, QTensor)
    assert torch.equal(near.scale, q.scale)
    for padded, value in ((near, 0.3), (far, 50.0)):
        exact = F.pad(q.dequantize(), (1, 1), value=value)
        assert float((padded.dequantize() - exact).abs().max()) <= 0.5001 * padded.q_scale()


def test_what_has_no_code_gives_floats() -> None:
    """Infinity, new channels of another value, and formats without an exact zero."""
    q = hs.quantize(X, hs.int8, axis=1)
    table = hs.quantize(X, QSpec(hs.uint8, PerChannel(1), float_zero_point=True))
    for padded in (
        F.pad(q, (1, 1), value=float("-inf")),
        F.pad(q, (0, 0, 1, 1), value=2.0),
        F.pad(table, (1, 1)),
    ):
        assert not isinstance(padded, QTensor)


def test_tearing_a_group_raises() -> None:
    """Groups are padded and cropped by whole runs."""
    q = hs.quantize(X, QSpec(hs.int8, PerGroup(2, 3)))
    assert F.pad(q, (3, 0)).shape == (2, 4, 9)
    with pytest.raises(GranularityError) as error:
        F.pad(q, (1, 0))
    assert str(error.value) == (
        "padding axis 2 by (1, 0) would tear runs of 3 values that share a scale "
        "(PerGroup(axis=2, size=3)): pad by multiples, or pad q.dequantize()"
    )
