"""Every operator under torch's own checks: schema, fakes, meta, compile, export."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from torch import Tensor, nn

from halfstep.numerics import fake_quantize, learnable_fake_quantize, ops
from halfstep.spec import PerChannel, PerGroup, QSpec, int4, int8
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, Case, cases

SPEC = QSpec(int8, PerChannel(1))


def codes(*shape: int) -> Tensor:
    """Random int8 codes."""
    return torch.randint(-20, 20, shape, dtype=torch.int8)


def steps(*shape: int) -> Tensor:
    """Random scales."""
    return torch.rand(shape) + 0.05


def zeros(*shape: int) -> Tensor:
    """Random small zero points."""
    return torch.randint(-3, 4, shape, dtype=torch.int32)


def arguments() -> dict[str, tuple[Any, ...]]:
    """Arguments for every operator, with gradients wanted where there are any."""
    x = torch.randn(2, 3, 4, 4, requires_grad=True)
    scale, zero = steps(1, 3, 1, 1), zeros(1, 3, 1, 1)
    grad_scale, float_zero = scale.clone().requires_grad_(), zero.float().requires_grad_()
    affine, learned = (x, scale, zero, -8, 7), (x, grad_scale, float_zero, -8, 7, 0.5)
    return {
        "quantize": (x.detach(), scale, zero, -8, 7, torch.int8),
        "dequantize": (codes(2, 3, 4, 4), grad_scale, zero, torch.float32),
        "fake_quantize": affine,
        "fake_quantize_with_mask": affine,
        "mask_gradient": (x.detach(), x.detach() > 0),
        "learnable_fake_quantize": learned,
        "learnable_fake_quantize_backward": (
            torch.ones_like(x),
            *(value.detach() if isinstance(value, Tensor) else value for value in learned),
        ),
        "min_max": (x.detach(), (1, 3, 1, 2)),
        "histogram_": (
            torch.zeros(1, 3, 1, 1, 129, dtype=torch.int64),
            x.detach(),
            torch.full((1, 3, 1, 1), 130, dtype=torch.int32),
        ),
        "choose_qparams": (-steps(1, 3), steps(1, 3), -128, 127, False),
        "pack": (codes(3, 5), 4),
        "unpack": (torch.arange(8, dtype=torch.uint8), 4, True, (3, 5)),
        "requantize": (torch.randn(2, 3, 4, 4), scale, zero, -8, 7, torch.int8),
    }


def contractions() -> dict[str, tuple[Any, ...]]:
    """Arguments for the integer products."""
    operands = (codes(2, 4, 6, 6), steps(1, 1, 1, 1), zeros(1, 1, 1, 1))
    weight = (codes(6, 2, 3, 3), steps(6, 1, 1, 1), zeros(6, 1, 1, 1))
    transposed = (codes(4, 3, 3, 3), steps(1, 3, 1, 1), zeros(1, 3, 1, 1))
    row = (codes(2, 8), steps(1, 1), zeros(1, 1))
    grouped = (codes(4, 8), steps(4, 2), zeros(4, 2))
    batch = (codes(2, 3, 4), steps(1, 1, 1), zeros(1, 1, 1))
    return {
        "matmul": (*batch, codes(4, 5), steps(1, 5), zeros(1, 5)),
        "linear": (*row, *grouped, steps(4)),
        "conv": (*operands, *weight, steps(6), (2, 1), (1, 0), (1, 2), 2),
        "conv_transpose": (*operands, *transposed, None, (2, 1), (1, 0), (1, 0), 2, (1, 2)),
    }


def registered() -> list[str]:
    """The names of the operators that ``ops`` registers."""
    operators = vars(ops).items()
    return [name for name, op in operators if isinstance(op, torch._ops.OpOverload)]


def as_tuple(outputs: Tensor | tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
    """One output, several, or none of an operator that writes into its input."""
    return (outputs,) if isinstance(outputs, Tensor) else outputs or ()


def test_every_operator_is_checked_here() -> None:
    """The table above names all operators of the namespace."""
    assert sorted(registered()) == sorted(arguments() | contractions())
    assert all(getattr(ops, name)._schema.name == f"halfstep::{name}" for name in registered())


@pytest.mark.parametrize("name", registered())
def test_opcheck(name: str) -> None:
    """The schema, the fake, the autograd registration and AOT dispatch hold up in opcheck."""
    torch.library.opcheck(getattr(ops, name), (arguments() | contractions())[name])


@pytest.mark.parametrize("name", registered())
def test_meta_tells_what_comes_out(name: str) -> None:
    """On the meta device: the dtype, shape and strides of the real output, and no values."""
    args = (arguments() | contractions())[name]
    real = as_tuple(getattr(ops, name)(*args))
    on_meta = (arg.to("meta") if isinstance(arg, Tensor) else arg for arg in args)
    meta = as_tuple(getattr(ops, name)(*on_meta))
    assert len(meta) == len(real)
    for fake, true in zip(meta, real, strict=True):
        assert fake.device.type == "meta"
        assert (fake.dtype, fake.shape, fake.stride()) == (true.dtype, true.shape, true.stride())


@QUICK
@given(cases(min_side=1))
def test_meta_knows_every_layout(case: Case) -> None:
    """The fake of quantize has the strides of the real one for every memory format."""
    args = (case.x, case.scale, case.zero_point)
    real = ops.quantize(*args, *case.bounds, case.storage)
    mode = torch._subclasses.FakeTensorMode()
    fakes = [mode.from_tensor(arg) for arg in args]
    with mode:
        fake = ops.quantize(*fakes, *case.bounds, case.storage)
    assert (fake.dtype, fake.shape, fake.stride()) == (real.dtype, real.shape, real.stride())


def simulated(x: Tensor) -> Tensor:
    """Range, qparams and fake-quantize, from x itself."""
    return fake_quantize(x, SPEC) * 2


def grouped(x: Tensor) -> Tensor:
    """Per group, with a weight's shape."""
    return fake_quantize(x.flatten(1), QSpec(int4, PerGroup(1, 8), symmetric=True))


def given_qparams(x: Tensor) -> Tensor:
    """Checks of Python numbers take place while tracing."""
    return fake_quantize(x, int8, axis=1, scale=[0.1, 0.2, 0.3], zero_point=[0, 1, 2])


def there_and_back(x: Tensor) -> Tensor:
    """Quantize, then dequantize."""
    scale, zero = torch.full((1, 1, 1, 1), 0.1), torch.zeros(1, 1, 1, 1, dtype=torch.int32)
    q = ops.quantize(x.detach(), scale, zero, -128, 127, torch.int8)
    return x + ops.dequantize(q, scale, zero, torch.float32)


def learned(x: Tensor) -> Tensor:
    """Learnable fake-quantize, its scale a function of x."""
    scale = x.abs().amax((0, 2, 3), keepdim=True) / 127
    zero = torch.zeros_like(scale)
    return learnable_fake_quantize(x, SPEC, scale=scale, zero_point=zero, grad_factor=0.1)


FUNCTIONS = (simulated, grouped, given_qparams, there_and_back, learned)


def value_and_gradient(f: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    """f(x) and the gradient of its sum of squares."""
    x = x.clone().requires_grad_()
    y = f(x)
    return y.detach(), torch.autograd.grad(y.square().sum(), x)[0]


@pytest.mark.parametrize("f", FUNCTIONS)
def test_compile_changes_no_bit(f: Callable[[Tensor], Tensor]) -> None:
    """torch.compile(fullgraph=True) captures values and gradients, the same in every bit."""
    torch._dynamo.reset()
    x = torch.randn(2, 3, 4, 4)
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
    for got, wanted in zip(value_and_gradient(compiled, x), value_and_gradient(f, x), strict=True):
        assert_same_bits(got, wanted)


def test_compile_with_dynamic_shapes() -> None:
    """One compiled graph serves every batch size."""
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(simulated, fullgraph=True, backend=counter, dynamic=True)
    for batch in (2, 3, 5, 8):
        x = torch.randn(batch, 3, 4, 4)
        assert_same_bits(compiled(x), simulated(x))
    assert counter.frame_count == 1


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # inductor warns of its own deprecated calls
def test_inductor_runs_the_operators() -> None:
    """The default backend keeps the operators whole, so their bits stay."""
    torch._dynamo.reset()
    x = torch.randn(2, 3, 4, 4)
    compiled = torch.compile(lambda x: fake_quantize(x, SPEC), fullgraph=True)
    assert_same_bits(compiled(x), fake_quantize(x, SPEC))


class Wrapped(nn.Module):
    """A function as a module, for export."""

    def __init__(self, f: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.f = f

    def forward(self, x: Tensor) -> Tensor:
        """f(x)."""
        return self.f(x)


@pytest.mark.parametrize("f", FUNCTIONS)
def test_export_keeps_the_operators(f: Callable[[Tensor], Tensor]) -> None:
    """torch.export records halfstep's operators by name, for any batch size, bits unchanged."""
    x = torch.randn(2, 3, 4, 4)
    dynamic = {"x": {0: torch.export.Dim.AUTO}}
    program = torch.export.export(Wrapped(f), (x,), dynamic_shapes=dynamic)
    names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert any(name.startswith("halfstep.") for name in names)
    other = torch.randn(5, 3, 4, 4)
    assert_same_bits(program.module()(other), f(other))
