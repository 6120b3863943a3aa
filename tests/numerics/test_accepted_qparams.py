"""Every reasonable way to write scale and zero point ends in the one form that operators take."""

from typing import Any

import numpy as np
import pytest
import torch

from halfstep.numerics.checks import resolve_qparams, resolve_spec
from halfstep.spec import PerChannel, PerGroup, PerTensor, PerToken, QSpec, int8, int32, uint8
from tests.assertions import assert_same_bits

X = torch.linspace(-1, 1, 64 * 3 * 8).reshape(64, 3, 8)
CPU = torch.device("cpu")
FLOAT_ZERO_POINT = QSpec(uint8, float_zero_point=True)


@pytest.mark.parametrize(
    "value", [0.5, [0.5], np.float32(0.5), np.array([0.5]), torch.tensor(0.5), torch.ones(1, 1) / 2]
)
def test_one_number_serves_every_granularity(value: Any) -> None:
    """A Python or NumPy number, a list of one, or a tensor of one expand to the shape of scale."""
    for granularity in (PerTensor(), PerChannel(1), PerGroup(2, 4), PerToken()):
        spec = QSpec(int8, granularity)
        scale, zero_point = resolve_qparams(X.shape, spec, value, 0, CPU)
        wanted = granularity.scale_shape(tuple(X.shape))
        assert_same_bits(scale, torch.full(wanted, 0.5))
        assert_same_bits(zero_point, torch.zeros(wanted, dtype=torch.int32))
        assert scale.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int64, torch.float16])
def test_one_value_per_channel_in_any_dtype(dtype: torch.dtype) -> None:
    """Per channel a flat list or the full shape, in any real dtype, become float32 and int32."""
    values = torch.tensor([1, 2, 3], dtype=dtype)
    for given in (values, values.view(1, 3, 1), values.tolist()):
        scale, zero_point = resolve_qparams(X.shape, QSpec(int8, PerChannel(1)), given, given, CPU)
        assert_same_bits(scale, torch.tensor([1.0, 2.0, 3.0]).view(1, 3, 1))
        assert_same_bits(zero_point, torch.tensor([1, 2, 3], dtype=torch.int32).view(1, 3, 1))


def test_no_channels_need_no_scales() -> None:
    """An empty axis takes an empty list, or one number for nobody."""
    values: tuple[Any, ...] = ([], 0.1)
    for given in values:
        spec = QSpec(int8, PerChannel(1))
        scale, _ = resolve_qparams(torch.Size([2, 0]), spec, given, 0, CPU)
        assert scale.shape == (1, 0)


def test_defaults_of_the_zero_point() -> None:
    """Symmetric needs none; the float form keeps fractions; int32 takes every code."""
    symmetric = QSpec(int8, symmetric=True)
    assert resolve_qparams(X.shape, symmetric, 0.1, None, CPU)[1].tolist() == [[[0]]]
    zero_point = resolve_qparams(X.shape, FLOAT_ZERO_POINT, 0.1, 2.5, CPU)[1]
    assert_same_bits(zero_point, torch.full((1, 1, 1), 2.5))
    zero_point = resolve_qparams(X.shape, QSpec(int32), 0.1, int32.qmin, CPU)[1]
    assert zero_point.item() == int32.qmin


def test_a_dtype_stands_for_a_spec() -> None:
    """A dtype and an axis are short for the QSpec."""
    assert resolve_spec(int8, None, 3) == QSpec(int8)
    assert resolve_spec(torch.uint8, -1, 3) == QSpec(uint8, PerChannel(2))
    assert resolve_spec(QSpec(int8, PerChannel(-1)), None, 3) == QSpec(int8, PerChannel(2))
