"""FakeQuantize: two switches, one grid, and gradients that train it."""

import copy
import pickle

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError, HalfstepError
from halfstep.numerics import fake_quantize
from halfstep.observe import FakeQuantize, HistogramObserver, MinMaxObserver, MovingAverageObserver
from halfstep.spec import PerChannel, PerGroup, QSpec, int4, int8, uint8
from tests.assertions import assert_same_bits
from tests.observe.kinds import KINDS, SPECS, make
from tests.strategies import FLOAT_DTYPES

EVERY_SPEC = pytest.mark.parametrize("spec", SPECS, ids=repr)
INTEGER_SPECS = tuple(spec for spec in SPECS if not spec.float_zero_point)


@pytest.mark.parametrize("kind", KINDS)
@EVERY_SPEC
def test_equals_fake_quantize_with_the_observed_range(kind: str, spec: QSpec) -> None:
    """The output is that of the function, with the qparams of an observer that saw the same."""
    module, observer = FakeQuantize(make(kind, spec)), make(kind, spec)
    for _ in range(2):
        x = torch.randn(4, 6)
        observer(x)
        scale, zero_point = observer.qparams()
        expected = fake_quantize(x, spec, scale=scale, zero_point=zero_point)
        assert_same_bits(module(x), expected)
        for ours, theirs in zip(module.qparams(), (scale, zero_point), strict=True):
            assert_same_bits(ours, theirs)


@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_keeps_the_dtype(dtype: torch.dtype) -> None:
    """Any float dtype comes out as it went in."""
    assert FakeQuantize(MinMaxObserver(int8))(torch.randn(3, 4, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("form", ["plain", "learnable"])
def test_scale_stays_float32(form: str) -> None:
    """A model converted to bfloat16 keeps its scales, and learned ones still train."""
    module = FakeQuantize(MinMaxObserver(int8), learnable=form == "learnable")
    x = torch.randn(3, 4)
    expected = module(x).bfloat16()
    module.freeze().bfloat16()
    assert module.scale.dtype == torch.float32
    y = module(x.bfloat16().requires_grad_())
    y.sum().backward()
    assert (y - expected).abs().max() <= 1.1 * module.scale.max()


def test_switches_are_separate() -> None:
    """Observe only, quantize only, both, neither."""
    module, x = FakeQuantize(MinMaxObserver(uint8)), torch.tensor([0.0, 0.503, 2.55])
    module.quantizing = False
    assert module(x) is x
    module.freeze()
    assert module(2 * x).tolist() == (2 * x).tolist()
    assert module.observer.count == 3
    module.quantizing = True
    assert module(2 * x).max() == pytest.approx(2.55)
    assert module.observer.count == 3
    module.observing = True
    assert module(2 * x).max() == pytest.approx(5.1)


def test_range_by_hand_is_used_without_data() -> None:
    """A range set by hand and frozen quantizes any number of dimensions."""
    module = FakeQuantize(MinMaxObserver(QSpec(int8, PerChannel(1), symmetric=True)))
    module.observer.set_range(-12.8, 12.7)
    module.freeze()
    for shape in ((2, 3), (2, 3, 4, 4)):
        x = torch.full(shape, 0.14)
        assert torch.allclose(module(x), torch.full(shape, 0.1))


@pytest.mark.parametrize("form", ["plain", "learnable"])
@pytest.mark.parametrize("spec", INTEGER_SPECS, ids=repr)
def test_state_round_trips(form: str, spec: QSpec) -> None:
    """state_dict, deepcopy and pickle carry ranges, qparams and switches, before data and after."""
    module = FakeQuantize(HistogramObserver(spec), learnable=form == "learnable")
    for x in (None, torch.randn(4, 6)):
        if x is not None:
            module(x)
            module.observing = False
        loaded = FakeQuantize(HistogramObserver(spec), learnable=form == "learnable")
        loaded.load_state_dict(module.state_dict())
        for other in (loaded, copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
            assert repr(other) == repr(module)
            if x is not None:
                assert_same_bits(other(2 * x), module(2 * x))


@EVERY_SPEC
def test_gradient_is_straight_through(spec: QSpec) -> None:
    """1 inside the range and 0 outside, as the function's."""
    module = FakeQuantize(MinMaxObserver(spec))
    module(torch.randn(4, 6))
    module.freeze()
    x = (3 * torch.randn(4, 6)).requires_grad_()
    module(x).sum().backward()
    twin = x.detach().requires_grad_()
    scale, zero_point = module.qparams()
    fake_quantize(twin, spec, scale=scale, zero_point=zero_point).sum().backward()
    assert x.grad is not None
    assert twin.grad is not None
    assert_same_bits(x.grad, twin.grad)
    assert 0 < x.grad.mean() < 1


@pytest.mark.parametrize("form", ["plain", "learnable"])
def test_double_backward_is_refused(form: str) -> None:
    """A second derivative of rounding means nothing, and the error says so."""
    module = FakeQuantize(MinMaxObserver(int8), learnable=form == "learnable")
    x = torch.randn(5, requires_grad=True)
    (grad,) = torch.autograd.grad(module(x).square().sum(), x, create_graph=True)
    with pytest.raises(HalfstepError, match="a second backward through it is refused"):
        grad.sum().backward()


@pytest.mark.parametrize("spec", INTEGER_SPECS, ids=repr)
def test_learnable_starts_from_the_observed_range(spec: QSpec) -> None:
    """The first forward equals plain fake-quantize, and observing ends there."""
    plain, learnable = (
        FakeQuantize(MinMaxObserver(spec), learnable=flag) for flag in (False, True)
    )
    parameters = list(learnable.parameters())
    x = torch.randn(4, 6)
    assert_same_bits(learnable(x), plain(x))
    assert not learnable.observing
    learnable(100 * x)
    assert learnable.observer.count == 24
    assert [id(p) for p in learnable.parameters()] == [id(p) for p in parameters]
    assert parameters[0].shape == spec.granularity.scale_shape((4, 6))


@pytest.mark.parametrize("spec", [QSpec(uint8), QSpec(int8, PerChannel(1))], ids=repr)
def test_scale_gradient_is_that_of_finite_differences(spec: QSpec) -> None:
    """With the rounding offsets held fixed y is linear in scale: its slope times 1/sqrt(n qmax)."""
    module = FakeQuantize(MinMaxObserver(spec), learnable=True)
    x = torch.randn(40, 3)
    module(x)
    module.scale.data *= 0.6  # so that some values are clamped
    weights = torch.randn(40, 3)
    (module(x) * weights).sum().backward()
    scale, zero_point = module.scale.detach().double(), module.zero_point.detach().round().double()
    steps = x.double() / scale
    offset = steps.round() - steps  # what the surrogate holds fixed

    def surrogate(scale: Tensor) -> Tensor:
        free = x.double() / scale + offset + zero_point
        inside = (free.round() >= spec.qmin) & (free.round() <= spec.qmax)
        fixed = torch.where(inside, free, free.clamp(spec.qmin, spec.qmax))
        return ((fixed - zero_point) * scale * weights).sum(0, keepdim=True)

    h = 1e-6 * scale
    slope = (surrogate(scale + h) - surrogate(scale - h)) / (2 * h)
    slope = slope if scale.numel() > 1 else slope.sum().reshape(1, 1)
    elements = x.numel() // scale.numel()
    assert module.scale.grad is not None
    expected = slope / (elements * spec.qmax) ** 0.5
    assert torch.allclose(module.scale.grad.double(), expected, rtol=1e-3, atol=1e-4)


def test_learnable_learns() -> None:
    """Training scale and zero point alone brings the output nearer to the input."""
    module = FakeQuantize(MinMaxObserver(QSpec(int4)), learnable=True)
    x = torch.randn(2000)
    before = (module(x) - x).square().mean().item()
    optimizer = torch.optim.Adam(module.parameters(), lr=0.02)
    for _ in range(60):
        optimizer.zero_grad()
        (module(x) - x).square().mean().backward()
        optimizer.step()
    assert (module(x) - x).square().mean().item() < 0.75 * before


def test_scale_that_training_ruins_stays_a_step() -> None:
    """A scale pushed below 0 counts as the least normal float32, and its gradient still comes."""
    module = FakeQuantize(MinMaxObserver(QSpec(int8, symmetric=True)), learnable=True)
    module(torch.randn(5))
    module.scale.data.fill_(-1.0)
    module(torch.randn(5)).sum().backward()
    assert module.qparams()[0].item() == 2.0**-126
    assert module.scale.grad is not None
    assert module.scale.grad.isfinite().all()
    assert not module.zero_point.requires_grad


def test_errors_say_what_to_do() -> None:
    """Misuse is refused with the way out."""
    with pytest.raises(ArgumentTypeError, match="is not an observer: give one, such as MinMaxO"):
        FakeQuantize(QSpec(int8))  # type: ignore[arg-type]  # that is the test
    with pytest.raises(ArgumentError, match="leave out float_zero_point"):
        FakeQuantize(MinMaxObserver(QSpec(uint8, float_zero_point=True)), learnable=True)
    module = FakeQuantize(MinMaxObserver(int8))
    module.observing = False
    module.observer.name = "fc"
    with pytest.raises(ArgumentError, match="FakeQuantize of layer 'fc' has no scale yet: run a"):
        module(torch.ones(3))
    with pytest.raises(ArgumentError, match="MinMaxObserver of layer 'fc' has seen no data"):
        module.freeze()
    grouped = FakeQuantize(MinMaxObserver(QSpec(int8, PerGroup(1, 2))))
    grouped(torch.randn(4, 6))
    grouped.freeze()
    with pytest.raises(
        GranularityError, match=r"has scales of shape \(4, 3\), and this input needs"
    ):
        grouped(torch.randn(4, 8))


def test_empty_batch_passes() -> None:
    """No values, nothing to observe or round, not even a scale to miss."""
    assert FakeQuantize(MinMaxObserver(int8))(torch.empty(0, 3)).shape == (0, 3)


def test_trains_inside_a_model() -> None:
    """A model with fake-quantized activations trains as usual."""
    model = nn.Sequential(
        nn.Linear(8, 16),
        FakeQuantize(MovingAverageObserver(uint8, momentum=0.1)),
        nn.ReLU(),
        nn.Linear(16, 1),
    )
    x = torch.randn(64, 8)
    target = x.sum(1, keepdim=True)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (model(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_evaluation_observes_until_frozen() -> None:
    """eval() switches nothing, as the docstring says; freeze() does."""
    module = FakeQuantize(MinMaxObserver(uint8))
    module(torch.ones(12))
    module.eval()(torch.ones(12))
    assert module.observer.count == 24
    module.freeze()(torch.ones(12))
    assert module.observer.count == 24
