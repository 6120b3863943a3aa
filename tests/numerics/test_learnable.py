"""Learnable fake-quantize: LSQ gradients, and sums that no order can change."""

import math
import warnings

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor

from halfstep.numerics import learnable, ops
from tests.assertions import assert_same_bits
from tests.strategies import MEMORY_FORMATS, QUICK, Case, cases, repeated

Grads = tuple[Tensor, Tensor, Tensor]


def formula(grad: Tensor, case: Case, factor: float) -> Grads:
    """The three gradients in float64, element by element; only x / scale is float32's."""
    shape = tuple(case.x.shape)
    scale = repeated(case.scale, shape)
    z = repeated(case.zero_point, shape).double().round().clamp(*case.bounds)
    v = torch.from_numpy(np.asarray(case.x.float().numpy() / scale.numpy())).double()
    code, g = v.round() + z, grad.double()
    below, above = code < case.spec.qmin, code > case.spec.qmax
    slope = torch.where(below, case.spec.qmin - z, v.round() - v)
    slope = torch.where(above, case.spec.qmax - z, slope)
    offset = torch.where(below | above, -scale.double(), 0.0)
    inside = (~(below | above)).double()
    return (
        g * inside,
        shared_sum(g * slope, case) * factor,
        shared_sum(g * offset, case) * factor,
    )


def shared_sum(terms: Tensor, case: Case) -> Tensor:
    """Sum the terms into the scale that each element has, by index."""
    positions = torch.arange(case.scale.numel()).reshape(case.scale.shape)
    positions = repeated(positions, tuple(terms.shape)).flatten()
    sums = torch.zeros(case.scale.numel(), dtype=torch.float64)
    return sums.index_add_(0, positions, terms.flatten()).reshape(case.scale.shape)


def backward(grad: Tensor, case: Case, factor: float = 1.0) -> Grads:
    """The three gradients by the operator."""
    zero_point = case.zero_point.float()
    grad_x, grad_scale, grad_zero_point = ops.learnable_fake_quantize_backward(
        grad, case.x, case.scale, zero_point, *case.bounds, factor
    )
    return grad_x, grad_scale, grad_zero_point


@QUICK
@given(cases(max_bits=8, specials=(), float_zero_point=False), st.sampled_from([1.0, 0.125, 1 / 3]))
def test_gradients_follow_the_formula(case: Case, factor: float) -> None:
    """x, scale and zero point get the gradients of the papers, to float32's precision."""
    grad = torch.randn(case.x.shape).to(case.x.dtype)
    got, wanted = backward(grad, case, factor), formula(grad, case, factor)
    assert [g.dtype for g in got] == [case.x.dtype, torch.float32, torch.float32]
    assert torch.equal(got[0].double(), wanted[0])
    # The sums may cancel: the error is relative to the terms, at most 255 * |grad| each.
    terms = grad.double().abs().sum().item()
    torch.testing.assert_close(got[1].double(), wanted[1], rtol=1e-5, atol=1e-5 * terms)
    widest = case.scale.amax().item() if case.scale.numel() else 0.0
    torch.testing.assert_close(got[2].double(), wanted[2], rtol=1e-5, atol=1e-5 * terms * widest)


@QUICK
@given(cases(float_zero_point=False))
def test_forward_is_fake_quantize_with_a_rounded_zero_point(case: Case) -> None:
    """Equal in every bit to fake-quantize with clamp(rne(zero_point), qmin, qmax)."""
    learned = case.zero_point.float() + torch.rand(case.zero_point.shape) * 0.4
    z = learned.round().clamp(*case.bounds).to(torch.int32)
    y = ops.learnable_fake_quantize(case.x, case.scale, learned, *case.bounds, 0.5)
    assert_same_bits(y, ops.fake_quantize(case.x, case.scale, z, *case.bounds))


@pytest.mark.parametrize("zero_point", [-1e30, -9.0, 8.0, 1e30, math.inf])
def test_a_zero_point_that_left_the_codes_is_clamped(zero_point: float) -> None:
    """Training may push the zero point anywhere; it stands for the nearest code."""
    x, scale = torch.linspace(-2, 2, 41), torch.tensor([0.1])
    wanted = torch.tensor([min(max(zero_point, -8.0), 7.0)])
    args = (scale, torch.tensor([zero_point]), -8, 7, 1.0)
    near = (scale, wanted, -8, 7, 1.0)
    assert_same_bits(ops.learnable_fake_quantize(x, *args), ops.learnable_fake_quantize(x, *near))


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("factor", [1.0, 0.01])
def test_gradients_agree_with_torch(*, per_channel: bool, factor: float) -> None:
    """The gradients are those of torch's own learnable fake-quantize.

    The scales are powers of two: there torch's multiplication by 1 / scale rounds as a division.
    Per tensor only zero points from 0 on: below, torch's backward takes zero_point + 1 for deciding
    what lies inside, and disagrees with its own forward.
    """
    channels = 6 if per_channel else 1
    x, grad = torch.randn(4, 6, 5, 5) * 2, torch.randn(4, 6, 5, 5)
    scale = torch.exp2(torch.randint(-5, 0, (channels,)).float())
    zero = torch.randint(-3 if per_channel else 0, 4, (channels,)).float()
    leaves = [t.clone().requires_grad_() for t in (x, scale, zero)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may say that it is deprecated: that is why we exist
        kind, axis = ("per_channel", [1]) if per_channel else ("per_tensor", [])
        theirs = getattr(torch, f"_fake_quantize_learnable_{kind}_affine")
        y = theirs(*leaves, *axis, -8, 7, factor)
        wanted = torch.autograd.grad(y, leaves, grad)
    shape = (1, channels, 1, 1)
    ours = [leaves[0], *(t.detach().reshape(shape).requires_grad_() for t in leaves[1:])]
    y2 = ops.learnable_fake_quantize(*ours, -8, 7, factor)
    torch.testing.assert_close(y2, y)
    for got, want in zip(torch.autograd.grad(y2, ours, grad), wanted, strict=True):
        torch.testing.assert_close(got, want.reshape(got.shape), rtol=1e-4, atol=1e-4)


def hard_case() -> tuple[Tensor, Tensor]:
    """x and a gradient whose great terms cancel: even their float64 sums depend on the order."""
    x, grad = torch.randn(8, 6, 32, 32), torch.randn(8, 6, 32, 32)
    grad[:3] *= torch.exp2(torch.randint(-20, 36, grad[:3].shape).float())
    x[4:7], grad[4:7] = x[:3], -grad[:3]
    return x, grad


def sums(x: Tensor, grad: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The gradients of scale and zero point, flat."""
    scale = torch.full(shape, 0.1)
    _, ds, dz = ops.learnable_fake_quantize_backward(grad, x, scale, torch.zeros(shape), -8, 7, 1.0)
    return torch.stack([ds.flatten(), dz.flatten()])


def test_sums_do_not_depend_on_the_order_of_elements() -> None:
    """Permuting the elements of a channel changes no bit, although float64 sums would change."""
    x, grad = hard_case()
    expected = sums(x, grad, (1, 6, 1, 1))
    plain_sums = set()
    for seed in range(5):
        generator = torch.Generator().manual_seed(seed)
        order = torch.randperm(8 * 32 * 32, generator=generator)
        mixed = [
            t.transpose(0, 1).reshape(6, -1)[:, order].reshape(6, 8, 32, 32).transpose(0, 1)
            for t in (x, grad)
        ]
        assert_same_bits(sums(mixed[0], mixed[1], (1, 6, 1, 1)), expected)
        terms = (mixed[1] * (mixed[0] / 0.1))[:, 0].reshape(-1).double().numpy()
        plain_sums.add(float(np.float32(np.cumsum(terms)[-1])))
    assert len(plain_sums) > 1, "these elements would not have shown a dependence on order"


@pytest.mark.parametrize("layout", ["contiguous", "channels-last", "permuted", "sliced"])
@pytest.mark.parametrize("shape", [(1, 6, 1, 1), (1, 1, 1, 1), (8, 6, 32, 4), (1, 1, 1, 32)])
def test_sums_do_not_depend_on_layout(layout: str, shape: tuple[int, ...]) -> None:
    """Every memory format of x and of the gradient gives the same bits."""
    x, grad = hard_case()
    expected = sums(x, grad, shape)
    assert_same_bits(sums(MEMORY_FORMATS[layout](x), grad, shape), expected)
    assert_same_bits(sums(x, MEMORY_FORMATS[layout](grad), shape), expected)


def test_sums_do_not_depend_on_threads_or_splits() -> None:
    """Neither the number of threads nor how the elements are cut into dimensions matters."""
    x, grad = hard_case()
    expected = sums(x, grad, (1, 6, 1, 1))
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        assert_same_bits(sums(x, grad, (1, 6, 1, 1)), expected)
    for cut in ((8, 6, 4, 256), (2, 4, 6, 1024), (8, 6, 1024, 1)):
        shape = tuple(n if n == 6 else 1 for n in cut)
        assert_same_bits(sums(x.reshape(cut), grad.reshape(cut), shape), expected)


@QUICK
@given(
    st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50),
    st.permutations(range(50)),
)
def test_order_free_sum_is_nearly_exact(values: list[float], order: list[int]) -> None:
    """n terms up to b are off by at most n^2 b 2^-52 and one rounding to float32, in any order."""
    terms, bound = torch.tensor(values), max(map(abs, values))
    total = learnable.order_free_sum(terms, torch.Size([1]), bound)
    mixed = terms[[index for index in order if index < len(values)]]
    assert_same_bits(learnable.order_free_sum(mixed, torch.Size([1]), bound), total)
    exact = math.fsum(terms.tolist())
    slack = len(values) ** 2 * bound * 2.0**-52 + abs(exact) * 2.0**-24 + 2.0**-149
    assert abs(total.item() - exact) <= slack


def test_great_terms_that_cancel() -> None:
    """Where float64 sums differ visibly with the order, the order-free sum does not."""
    great = torch.randn(500) * torch.exp2(torch.randint(0, 60, (500,)).float())
    terms = torch.cat([great, -great, torch.randn(100)])
    bound, totals, plain_sums = float(great.abs().max()), set(), set()
    for _ in range(10):
        mixed = terms[torch.randperm(len(terms))]
        totals.add(learnable.order_free_sum(mixed, torch.Size([1]), bound).item())
        plain_sums.add(float(np.float32(np.cumsum(mixed.double().numpy())[-1])))
    assert len(totals) == 1
    assert len(plain_sums) > 1, "these terms would not have shown a dependence on order"


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), ()])
def test_nothing_sums_to_zero(shape: tuple[int, ...]) -> None:
    """An empty tensor has gradients of the right shapes; a number has its own."""
    x, scale = torch.ones(shape), torch.ones((1,) * len(shape))
    grads = ops.learnable_fake_quantize_backward(x, x, scale, scale * 0, -8, 7, 1.0)
    assert [g.shape for g in grads] == [x.shape, scale.shape, scale.shape]
    assert not grads[1].any()
    assert not grads[2].any()


def test_non_finite_gradients_show() -> None:
    """An infinite or NaN gradient reaches scale as Inf or NaN, so that a loss scaler sees it."""
    x = torch.tensor([[0.26, 5.0], [0.26, 5.0]])
    for bad in (math.inf, math.nan):
        grad = torch.tensor([[1.0, 1.0], [1.0, bad]])
        _, ds, _ = ops.learnable_fake_quantize_backward(
            grad, x, torch.full((2, 1), 0.1), torch.zeros(2, 1), -8, 7, 1.0
        )
        assert ds[0].isfinite()
        assert not ds[1].isfinite()


def test_nan_in_x_trains_nothing() -> None:
    """A NaN of x passes through the forward and contributes no gradient."""
    x, grad = torch.tensor([math.nan, 0.26]), torch.ones(2)
    one, zero = torch.full((1,), 0.1), torch.zeros(1)
    dx, ds, dz = ops.learnable_fake_quantize_backward(grad, x, one, zero, -8, 7, 1.0)
    assert dx.tolist() == [0.0, 1.0]
    assert ds.item() == pytest.approx(0.4, abs=1e-5)
    assert dz.item() == 0
