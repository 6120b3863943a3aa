"""float8 is computed as float32, by the kernels' side and by the plain formulas alike."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import halfstep as hs
from halfstep import ArgumentTypeError, PerChannel, QSpec
from halfstep.numerics import affine, blocks, fake_quantize, learnable, learnable_fake_quantize, ops
from halfstep.numerics.affine import FLOAT8
from halfstep.numerics.ranges import qparams_for_values

each_float8 = pytest.mark.parametrize("dtype", sorted(FLOAT8, key=str), ids=str)
SCALE, ZERO = torch.full((3, 1), 0.25), torch.zeros(3, 1, dtype=torch.int32)
BOUNDS = (-8, 7)


def values(dtype: torch.dtype) -> Tensor:
    """Some values of a float8 dtype: positive ones, since one has no sign."""
    return torch.tensor([[0.25, 0.5, 1.0], [2.0, 4.0, 8.0], [1.5, 0.3, 100.0]]).to(dtype)


def same(found: Any, expected: Any) -> bool:
    """Equal dtypes and values of one result or of several; NaN equals NaN."""
    if isinstance(found, tuple):
        return all(map(same, found, expected))
    alike = torch.equal(found.double().nan_to_num(-7.0), expected.double().nan_to_num(-7.0))
    return bool(found.dtype == expected.dtype and alike)


@each_float8
def test_operators_equal_the_plain_formulas(dtype: torch.dtype) -> None:
    """Every operator that takes or returns floats."""
    x, args = values(dtype), (SCALE, ZERO, *BOUNDS)
    codes = ops.quantize(x, *args, torch.int8)
    wanted = affine.quantize(x.float(), *args, torch.int8)
    assert same(codes, wanted)
    assert same(
        ops.dequantize(codes, SCALE, ZERO, dtype), affine.dequantize(wanted, SCALE, ZERO, dtype)
    )
    assert same(ops.fake_quantize(x, *args), affine.fake_quantize(x.float(), *args).to(dtype))
    y, mask = ops.fake_quantize_with_mask(x, *args)
    assert same((y, mask), affine.fake_quantize_with_mask(x, *args))
    assert same(ops.mask_gradient(x, mask), affine.mask_gradient(x, mask))
    assert same(ops.min_max(x, (3, 1)), blocks.min_max(x, (3, 1)))
    args = (SCALE, ZERO.float(), *BOUNDS, 1.0)
    assert same(ops.learnable_fake_quantize(x, *args), learnable.learnable_fake_quantize(x, *args))
    found = ops.learnable_fake_quantize_backward(x, x, *args)
    assert same(found, learnable.learnable_fake_quantize_backward(x, x, *args))


@each_float8
def test_what_users_call(dtype: torch.dtype) -> None:
    """fake_quantize keeps x's dtype, and its gradient too; quantize stands for it."""
    x = values(dtype)
    for spec in (QSpec(hs.int8), QSpec(hs.int4, PerChannel(0))):
        assert fake_quantize(x, spec).dtype == dtype
        leaf = x.clone().requires_grad_()
        fake_quantize(leaf, spec, scale=0.5, zero_point=0).float().sum().backward()
        assert leaf.grad is not None
        assert leaf.grad.dtype == dtype
        q = hs.quantize(x, spec)
        assert torch.equal(q.int_repr(), hs.quantize(x.float(), spec).int_repr())
        assert q.dtype == q.dequantize().dtype == dtype
    y = learnable_fake_quantize(x, hs.int8, scale=torch.ones(1, 1), zero_point=torch.zeros(1, 1))
    assert y.dtype == dtype


def test_nan_and_histograms() -> None:
    """NaN is counted and left out as for any float; counts are those of the float32 values."""
    x = torch.tensor([1.0, math.nan, 2.0]).to(torch.float8_e5m2)
    with pytest.raises(hs.NonFiniteError, match="1 NaN in 3 values"):
        hs.quantize(x, hs.int8)
    with pytest.raises(hs.NonFiniteError, match="1 NaN in 3 values"):
        hs.quantize(x, hs.int8, scale=1.0, zero_point=0)
    with pytest.warns(hs.HalfstepWarning, match="1 of 3 values"):
        hs.quantize(x, hs.int8, nan="ignore")
    assert same(
        qparams_for_values(x, QSpec(hs.int8), "ignore"),
        qparams_for_values(x[::2].float(), QSpec(hs.int8)),
    )
    counts = [torch.zeros(1, 129, dtype=torch.int64) for _ in range(2)]
    for count, one in zip(counts, (x[::2], x[::2].float()), strict=True):
        ops.histogram_(count, one, torch.tensor([128], dtype=torch.int32))
    assert torch.equal(*counts)


def test_packed_floats_are_refused() -> None:
    """Two values in a byte are not a float dtype to compute with."""
    x = torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    with pytest.raises(ArgumentTypeError, match=r"quantize cannot read torch\.float4_e2m1fn_x2"):
        hs.quantize(x, hs.int8)
