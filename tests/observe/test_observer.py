"""What every observer promises, whatever range it chooses."""

import copy
import io
import math
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from halfstep.errors import ArgumentError, ArgumentTypeError, GranularityError, NonFiniteError
from halfstep.observe import MinMaxObserver, Observer, reset_observers, sync_observers
from halfstep.spec import PerChannel, PerGroup, PerTensor, PerToken, QSpec, int8, uint8
from tests.assertions import assert_same_bits
from tests.observe.kinds import KINDS, SPECS, make, same_state
from tests.strategies import FLOAT_DTYPES, MEMORY_FORMATS

ALL = pytest.mark.parametrize("kind", KINDS)
GRANULARITIES = pytest.mark.parametrize("spec", SPECS, ids=repr)


def is_valid(scale: Tensor, zero_point: Tensor, spec: QSpec) -> bool:
    """Normal positive scales, zero points that are codes."""
    normal = scale.isfinite() & (scale >= 2.0**-126)
    code = (zero_point >= spec.qmin) & (zero_point <= spec.qmax)
    return bool(normal.all() and code.all())


@ALL
@GRANULARITIES
def test_input_passes_through(kind: str, spec: QSpec) -> None:
    """forward returns the very same tensor, and keeps no graph of it."""
    observer = make(kind, spec)
    x = torch.randn(4, 6, requires_grad=True) * 2
    assert nn.Sequential(observer)(x) is x
    scale, zero_point = observer.qparams()
    assert not scale.requires_grad
    assert not zero_point.requires_grad
    assert scale.shape == zero_point.shape == spec.granularity.scale_shape((4, 6))


@ALL
@pytest.mark.parametrize("layout", MEMORY_FORMATS)
def test_layout_does_not_matter(kind: str, layout: str) -> None:
    """Every memory format gives the same state, in every bit."""
    x = torch.randn(2, 6, 4, 4)
    x = x[:1].expand(x.shape) if layout == "expanded" else x
    a, b = (make(kind, QSpec(int8, PerChannel(1))) for _ in range(2))
    a(MEMORY_FORMATS[layout](x)), b(x.contiguous())
    assert same_state(a, b)


@ALL
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_every_float_dtype_counts_as_float32(kind: str, dtype: torch.dtype) -> None:
    """An observer of half or double sees what the float32 copy shows."""
    x = torch.randn(3, 8).to(dtype)
    a, b = make(kind), make(kind)
    a(x), b(x.float())
    assert same_state(a, b)


@ALL
def test_works_in_every_mode(kind: str) -> None:
    """no_grad, inference_mode and autocast change nothing, and may be mixed."""
    x, observer, expected = torch.randn(3, 8), make(kind), make(kind)
    with torch.inference_mode():
        observer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.no_grad():
        observer(x * 2)
    observer(x * 3)
    for factor in (1, 2, 3):
        expected(x * factor)
    assert same_state(observer, expected)


@ALL
@pytest.mark.parametrize(
    "values",
    [
        [0.0],
        [3.0],
        [-2.5, -2.5, -2.5],
        [1e38, -1e-3, 0.5],
        [3.4028235e38, -3.4028235e38],
        [1e-45, -1e-42],
        [1e-38, 2e-38],
        [0.0, -0.0],
        [1.0, 1e9],
    ],
    ids=str,
)
@pytest.mark.parametrize("spec", [QSpec(uint8), QSpec(int8, symmetric=True)], ids=repr)
def test_scale_is_always_valid(kind: str, values: list[float], spec: QSpec) -> None:
    """Outliers, subnormals, equal values and zeros each give a usable scale."""
    observer = make(kind, spec)
    observer(torch.tensor(values))
    assert is_valid(*observer.qparams(), spec)


@ALL
def test_empty_batch_changes_nothing(kind: str) -> None:
    """No values, no news: not even the shape is taken."""
    observer = make(kind)
    observer(torch.empty(0, 5))
    assert observer.count == 0
    assert not observer.has_range
    observer(torch.ones(2, 3, 4))
    observer(torch.empty(0, 5))
    assert observer.count == 24


@ALL
def test_last_batch_may_have_another_size(kind: str) -> None:
    """Per tensor and per channel take any batch size, and any number of dimensions."""
    observer = make(kind, QSpec(int8, PerChannel(1)))
    for shape in ((8, 3, 5), (2, 3, 5), (4, 3), (1, 3, 2, 2)):
        observer(torch.randn(shape))
    assert observer.qparams()[0].shape == (1, 3, 1, 1)


@ALL
def test_dead_channel_is_listed(kind: str) -> None:
    """A channel without values other than 0 has scale 1 and is named."""
    x = torch.randn(4, 3)
    x[:, 1] = 0.0
    observer = make(kind, QSpec(int8, PerChannel(1)))
    observer(x)
    assert observer.dead_channels() == [1]
    assert observer.qparams()[0][0, 1] == 1.0


@ALL
def test_not_a_number_raises(kind: str) -> None:
    """NaN and infinities raise, with their number, the layer, and the way out."""
    observer = make(kind)
    observer.name = "layer1.conv"
    text = r"of layer 'layer1.conv' was given 1 NaN and 2 infinite values in 5.*nonfinite='ignore'"
    with pytest.raises(NonFiniteError, match=text):
        observer(torch.tensor([1.0, math.nan, math.inf, -math.inf, 2.0]))
    assert observer.count == 0
    assert not observer.has_range or observer.min_val.isinf().all()


@ALL
@pytest.mark.parametrize("spec", [SPECS[0], SPECS[1], SPECS[2]], ids=repr)
def test_ignored_values_leave_no_trace(kind: str, spec: QSpec) -> None:
    """With nonfinite="ignore" the state is that of the finite values, and the rest is counted."""
    x = torch.randn(6, 6)
    dirty = torch.cat([x, torch.full((6, 6), math.nan), torch.full((6, 6), -math.inf)])
    a, b = make(kind, spec, nonfinite="ignore"), make(kind, spec)
    a(dirty), b(x)
    assert a.ignored == 72
    a.values_ignored.zero_()
    assert same_state(a, b)


def test_block_without_finite_values_is_dead() -> None:
    """A channel in which everything was ignored has scale 1."""
    observer = MinMaxObserver(QSpec(int8, PerChannel(0)), nonfinite="ignore")
    observer(torch.tensor([[math.nan, math.nan], [1.0, 2.0]]))
    assert observer.dead_channels() == [0]
    assert observer.count == 2


@ALL
def test_asking_before_data_names_observer_and_layer(kind: str) -> None:
    """qparams before data is an error that says whose, and what to do."""
    observer = make(kind)
    with pytest.raises(ArgumentError, match=f"^{type(observer).__name__} has seen no data: run ba"):
        observer.qparams()
    observer.name = "encoder.0"
    with pytest.raises(ArgumentError, match=r"of layer 'encoder\.0' has seen no data.*set_range"):
        observer.range()


@ALL
@GRANULARITIES
def test_state_goes_everywhere(kind: str, spec: QSpec) -> None:
    """deepcopy, pickle, torch.save and state_dict carry the state, before data and after."""
    observer = make(kind, spec)
    for x in (None, torch.randn(4, 6)):
        if x is not None:
            observer(x)
        file = io.BytesIO()
        torch.save(observer.state_dict(), file)
        file.seek(0)
        loaded = make(kind, spec)
        loaded(
            torch.randn(8, 12) * 50 if isinstance(spec.granularity, PerTensor) else torch.ones(4, 6)
        )
        loaded.load_state_dict(torch.load(file, weights_only=True))
        for other in (copy.deepcopy(observer), pickle.loads(pickle.dumps(observer)), loaded):
            assert same_state(other, observer)
            assert repr(other) == repr(observer)


@ALL
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_range_stays_float32(kind: str, dtype: torch.dtype) -> None:
    """A model converted to half or double keeps its ranges in every bit."""
    observer, expected = make(kind), make(kind)
    for batch in (torch.randn(4, 6), 3 * torch.randn(4, 6)):
        observer(batch), expected(batch)
        nn.Sequential(observer).to(dtype)
        assert same_state(observer, expected)
        assert observer.min_val.dtype == torch.float32


@ALL
def test_reset_can_be_undone(kind: str) -> None:
    """A state saved before a reset brings everything back."""
    observer = make(kind, QSpec(int8, PerChannel(1)))
    observer(torch.randn(4, 6))
    saved, before = copy.deepcopy(observer.state_dict()), observer.qparams()
    observer.reset()
    assert observer.count == 0
    observer.load_state_dict(saved)
    for restored, original in zip(observer.qparams(), before, strict=True):
        assert_same_bits(restored, original)


def test_state_of_another_granularity_is_refused() -> None:
    """Three channels do not load into an observer that has one scale."""
    source = MinMaxObserver(QSpec(int8, PerChannel(1)))
    source(torch.randn(2, 3))
    with pytest.raises(RuntimeError, match="size mismatch for min_val"):
        MinMaxObserver(int8).load_state_dict(source.state_dict())


def test_whole_model_is_reset() -> None:
    """reset_observers finds every observer, however deep."""
    model = nn.Sequential(MinMaxObserver(int8), nn.Sequential(nn.ReLU(), MinMaxObserver(uint8)))
    model(torch.randn(3))
    assert reset_observers(model) == 2
    assert all(part.count == 0 for part in model.modules() if isinstance(part, Observer))


@pytest.mark.parametrize("granularity", [PerToken(), PerGroup(1, 2)], ids=repr)
def test_other_scales_are_refused(granularity: PerToken | PerGroup) -> None:
    """A batch with other scales than those seen is an error that shows both shapes."""
    observer = MinMaxObserver(QSpec(int8, granularity))
    observer(torch.randn(4, 6))
    with pytest.raises(GranularityError, match=r"has seen scales of shape \(4, \d\), and this"):
        observer(torch.randn(2, 6))


def test_wrong_arguments_are_refused() -> None:
    """Each refusal says what was given and what is allowed."""
    with pytest.raises(ArgumentError, match="nonfinite='drop' is not a policy: use one of"):
        MinMaxObserver(int8, nonfinite="drop")
    with pytest.raises(ArgumentTypeError, match=r"takes floats, and x is torch\.int64"):
        MinMaxObserver(int8)(torch.arange(3))


def test_repr_shows_spec_count_and_range() -> None:
    """A printed model tells what its observers know."""
    observer = MinMaxObserver(uint8)
    assert repr(observer) == "MinMaxObserver(QSpec(uint8), count=0, range=none)"
    observer(torch.tensor([-1.0, 2.5]))
    assert repr(observer) == "MinMaxObserver(QSpec(uint8), count=2, range=[-1, 2.5])"


@pytest.mark.parametrize("kind", KINDS)
def test_a_single_number_is_observed(kind: str) -> None:
    """A tensor of no dimensions, such as a loss or a learned temperature, is data as any other."""
    observer = make(kind, QSpec(int8))
    observer(torch.tensor(5.0))
    scale, zero_point = observer.qparams()
    assert (scale.shape, zero_point.shape) == ((), ())
    assert scale.item() == pytest.approx(5 / 255, rel=0.1)


@pytest.mark.parametrize("verb", [reset_observers, sync_observers])
def test_the_verbs_take_modules_only(verb: Callable[[Any], int]) -> None:
    """Anything else is named."""
    with pytest.raises(ArgumentTypeError, match=r"model is a int: give a torch\.nn\.Module"):
        verb(3)
