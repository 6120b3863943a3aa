"""The gradients of the operators."""

import re

import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.errors import HalfstepError
from halfstep.numerics import fake_quantize, learnable_fake_quantize, ops
from halfstep.spec import PerChannel, QSpec, int4, int8
from tests.assertions import assert_same_bits
from tests.strategies import MEMORY_FORMATS, QUICK, Case, cases, repeated

REFUSAL = (
    "fake-quantize has a straight-through gradient, which has no derivative of its own: a second "
    "backward through it is refused; detach the first gradient, or leave out create_graph=True"
)


def surrogate(x: Tensor, case: Case) -> Tensor:
    """What the straight-through gradient is the derivative of: x clamped to the codes' cells."""
    scale, zero_point = (
        repeated(q, tuple(x.shape)).double() for q in (case.scale, case.zero_point)
    )
    low = (case.spec.qmin - zero_point - 0.5) * scale
    return x.clamp(low, (case.spec.qmax - zero_point + 0.5) * scale)


@QUICK
@given(cases(max_bits=16, x_dtypes=(torch.float32,), specials=(), float_zero_point=False))
def test_straight_through_is_the_slope_of_the_surrogate(case: Case) -> None:
    """The gradient equals the central difference of the clamped identity, away from its corners."""
    x = case.x.detach().clone().requires_grad_()
    y = ops.fake_quantize(x, case.scale, case.zero_point, *case.bounds)
    (grad,) = torch.autograd.grad(y.sum(), x)
    eps = repeated(case.scale, tuple(x.shape)).double() / 16
    at = x.detach().double()
    slope = (surrogate(at + eps, case) - surrogate(at - eps, case)) / (2 * eps)
    away = (slope < 0.01) | (slope > 0.99)
    torch.testing.assert_close(grad.double()[away], slope[away].round())


@QUICK
@given(cases(specials=()))
def test_both_forward_ops_have_the_same_gradient(case: Case) -> None:
    """Recomputing the mask in the backward and keeping it give the same bits."""
    upstream = torch.randn(case.x.shape).to(case.x.dtype)
    grads: list[Tensor] = []
    for op in (ops.fake_quantize, ops.fake_quantize_with_mask):
        x = case.x.detach().clone().requires_grad_()
        y = op(x, case.scale, case.zero_point, *case.bounds)
        y = y if isinstance(y, Tensor) else y[0]
        grads += torch.autograd.grad(y, x, upstream)
    assert_same_bits(grads[0], grads[1])
    _, mask = ops.fake_quantize_with_mask(case.x, case.scale, case.zero_point, *case.bounds)
    assert_same_bits(grads[0], torch.where(mask, upstream, torch.zeros_like(upstream)))


@pytest.mark.parametrize("layout", MEMORY_FORMATS)
def test_mask_gradient_selects(layout: str) -> None:
    """The gradient where the mask is set and 0.0 elsewhere, NaN and infinities included."""
    grad = MEMORY_FORMATS[layout](torch.randn(2, 3, 4, 4))
    grad = grad if layout == "expanded" else grad.index_fill(3, torch.tensor([1]), float("nan"))
    mask = torch.rand(grad.shape) < 0.5
    out = ops.mask_gradient(grad, mask)
    assert_same_bits(out, grad.masked_fill(~mask, 0.0))
    assert out.stride() == torch.empty_like(grad).stride()


@QUICK
@given(cases(x_dtypes=(torch.float32,), specials=(), max_bits=8, min_side=1))
def test_the_gradient_of_dequantize(case: Case) -> None:
    """d scale and d zero_point are those that autograd finds in (q - zero_point) * scale."""
    q = ops.quantize(case.x, case.scale, case.zero_point, *case.bounds, case.storage)
    is_float = case.spec.float_zero_point
    results = []
    for exact in (False, True):
        s = case.scale.clone().requires_grad_()
        z = case.zero_point.clone().requires_grad_(is_float)
        y = ops.dequantize(q, s, z, torch.float32)
        if exact:
            y = (q.double() - repeated(z, tuple(q.shape))) * repeated(s, tuple(q.shape))
        weights = torch.arange(q.numel()).reshape(q.shape).to(y.dtype)
        results.append(torch.autograd.grad((y * weights).sum(), [s, z] if is_float else [s]))
    for got, wanted in zip(*results, strict=True):
        torch.testing.assert_close(got, wanted.float(), rtol=1e-4, atol=1e-4)


def test_scale_and_zero_point_of_the_plain_form_get_no_gradient() -> None:
    """Only the learnable form trains them; the plain one leaves them alone."""
    x = torch.randn(8, requires_grad=True)
    scale = torch.full((1,), 0.1, requires_grad=True)
    ops.fake_quantize(x, scale, torch.zeros(1, dtype=torch.int32), -8, 7).sum().backward()
    assert x.grad is not None
    assert scale.grad is None


def _refused(y: Tensor, x: Tensor) -> None:
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(HalfstepError, match=re.escape(REFUSAL)):
        torch.autograd.grad(first.sum(), x)


def test_a_second_backward_is_refused() -> None:
    """A derivative of the straight-through gradient would be silently wrong, so there is none."""
    x = torch.randn(3, 4, requires_grad=True)
    spec = QSpec(int8, PerChannel(1))
    _refused(fake_quantize(x, spec), x)
    _refused(ops.fake_quantize(x, torch.ones(1, 1), torch.zeros(1, 1).int(), -8, 7), x)
    scale = torch.full((1, 4), 0.1)
    y = learnable_fake_quantize(x, spec, scale=scale, zero_point=torch.zeros(1, 4))
    _refused(y, x)


def test_the_first_gradient_may_be_used_as_data() -> None:
    """A detached gradient takes part in later graphs, as in gradient penalties on other inputs."""
    x = torch.randn(5, requires_grad=True)
    (grad,) = torch.autograd.grad(fake_quantize(x, int4).square().sum(), x)
    assert not grad.requires_grad
    (x * grad).sum().backward()
    assert x.grad is not None
    assert_same_bits(x.grad, grad)
