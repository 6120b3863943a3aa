"""The gradients of the operators: straight-through for x, LSQ for scale and zero point."""

from collections.abc import Callable
from typing import Any, NoReturn

import torch
from torch import Tensor

from halfstep.errors import HalfstepError
from halfstep.numerics import ops
from halfstep.numerics.affine import spread, steps_from_zero
from halfstep.numerics.blocks import block_sum

Context = Any  # torch.autograd.function.FunctionCtx is untyped in what it saves


def _save_mask(ctx: Context, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.set_materialize_grads(False)


def _masked(ctx: Context, grad: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    (mask,) = ctx.saved_tensors
    return (None if grad is None else ops.mask_gradient(grad, mask), None, None, None, None)


def _save_inputs(ctx: Context, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*(value for value in inputs if isinstance(value, Tensor)))
    ctx.constants = [value for value in inputs if not isinstance(value, Tensor)]


def _masked_anew(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    _, mask = ops.fake_quantize_with_mask(*ctx.saved_tensors, *ctx.constants)
    return (ops.mask_gradient(grad, mask), None, None, None, None)


def _learnable(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    gradients = ops.learnable_fake_quantize_backward(grad, *ctx.saved_tensors, *ctx.constants)
    return (*gradients, None, None, None)


def _dequantize(ctx: Context, grad: Tensor) -> tuple[Tensor | None, ...]:
    """d x' / d scale = q - zero_point, and -scale for a float zero point."""
    q, scale, zero_point = ctx.saved_tensors
    grad = grad.float()
    grad_scale = block_sum(grad * steps_from_zero(q, zero_point), scale.shape)
    if not zero_point.is_floating_point():
        return (None, grad_scale, None, None)
    return (None, grad_scale, block_sum(-grad * spread(scale, q.shape), scale.shape), None)


def _refuse(ctx: Context, *grads: Tensor) -> NoReturn:
    raise HalfstepError(
        "fake-quantize has a straight-through gradient, which has no derivative of its own: "
        "a second backward through it is refused; detach the first gradient, or leave out "
        "create_graph=True"
    )


def _save_nothing(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
    return None


def _register(name: str, backward: Callable[..., Any], setup: Callable[..., None]) -> None:
    torch.library.register_autograd(
        f"halfstep::{name}", backward, setup_context=setup, lib=ops.LIBRARY
    )


_register("fake_quantize", _masked_anew, _save_inputs)
_register("fake_quantize_with_mask", _masked, _save_mask)
_register("learnable_fake_quantize", _learnable, _save_inputs)
_register("dequantize", _dequantize, _save_inputs)
_register("mask_gradient", _refuse, _save_nothing)
_register("learnable_fake_quantize_backward", _refuse, _save_nothing)
