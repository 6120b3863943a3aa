"""Under FakeTensorMode and while make_fx traces, no value is looked at."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

import halfstep as hs
from halfstep import PerChannel, QSpec

X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
SPEC = QSpec(hs.int8, PerChannel(0))


def chain(x: Tensor) -> Any:
    """Sums, products and relu of quantized tensors, also of two formats."""
    a, b = hs.quantize(x, SPEC), hs.quantize(2 * x, SPEC)
    wide = hs.quantize(x, hs.int32)
    kept = ((a + b) * a - 0.5).relu() / 3 + wide
    return hs.add(torch.cat([kept, -b]), 1.0, scale=0.1, zero_point=0).dequantize()


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "quantize": lambda x: hs.quantize(x, SPEC).dequantize(),
    "quantize, ignoring NaN": lambda x: hs.quantize(x, hs.int4, nan="ignore").dequantize(),
    "quantize with qparams": lambda x: hs.quantize(x, hs.int8, scale=0.1, zero_point=3).int_repr(),
    "fake_quantize": lambda x: hs.fake_quantize(x, hs.int8, axis=0),
    "learnable_fake_quantize": lambda x: hs.learnable_fake_quantize(
        x, hs.int8, scale=torch.ones(1, 1), zero_point=torch.zeros(1, 1)
    ),
    "from_int_repr": lambda x: hs.from_int_repr(
        x.to(torch.int8), hs.int8, scale=0.5, zero_point=0
    ).dequantize(),
    "arithmetic": chain,
}
each_call = pytest.mark.parametrize("name", sorted(CALLS))


@each_call
def test_fake_tensors(name: str) -> None:
    """The result has the shape and dtype of the real one."""
    real = CALLS[name](X)
    with FakeTensorMode() as mode:
        fake = CALLS[name](mode.from_tensor(X))
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype)


@each_call
def test_make_fx(name: str) -> None:
    """A traced program computes what the call does."""
    traced = make_fx(CALLS[name], tracing_mode="fake")(X)
    torch.testing.assert_close(traced(X), CALLS[name](X), rtol=1e-6, atol=0.01)


def test_a_fake_tensor_prints_and_copies() -> None:
    """Without its integers, which it has none of."""
    with FakeTensorMode() as mode:
        q = hs.quantize(mode.from_tensor(X), SPEC)
        assert repr(q) == f"QTensor(..., shape=(3, 4), {SPEC}, dtype=torch.float32)"
        assert "table" not in q._repr_html_()
        q.copy_(hs.quantize(2 * mode.from_tensor(X), SPEC))
