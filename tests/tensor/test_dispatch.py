"""Whatever is called on a quantized tensor: right integers, right floats, or an error; no loss."""

import threading
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import halfstep as hs
from halfstep import (
    FallbackError,
    GranularityError,
    MutationError,
    PerChannel,
    PerGroup,
    PerTensor,
    PerToken,
    QSpec,
    QTensor,
)
from tests.tensor.operations import VALUES, Operation
from tests.tensor.results import (
    assert_scale_fits,
    assert_unchanged,
    assert_within_half_a_step,
    outcome,
    stored_copy,
)

SHAPES = ((2, 4, 6, 6), (4, 6), (3,), (), (4, 0))
FORMATS = (
    QSpec(hs.int8),
    QSpec(hs.uint16, PerChannel(0)),
    QSpec(hs.int4, PerChannel(-1), symmetric=True),
    QSpec(hs.uint2, PerToken()),
    QSpec(hs.int5, PerGroup(-1, 3)),
    QSpec(hs.uint8, PerChannel(0), float_zero_point=True),
)


def tensors() -> list[QTensor]:
    """One tensor of each shape and format that fit each other."""
    return [
        hs.quantize(3 * torch.randn(shape), spec)
        for shape in SHAPES
        for spec in FORMATS
        if shape or isinstance(spec.granularity, PerTensor)
    ]


@pytest.mark.parametrize("name", sorted(VALUES))
def test_integers_or_floats_but_never_wrong(name: str) -> None:
    """Within half a step of the floats' result, or that result; it raises where the floats do."""
    for q in tensors():
        before = stored_copy(q)
        expected, found = outcome(VALUES[name], q.dequantize()), outcome(VALUES[name], q)
        assert_unchanged(q, before)
        if isinstance(found, Exception):
            assert isinstance(expected, Exception | list)
            assert isinstance(expected, Exception) or isinstance(found, GranularityError), found
            continue
        assert not isinstance(expected, Exception), f"{q.spec} {tuple(q.shape)}: {expected}"
        for one, exact in zip(found, expected, strict=True):
            assert_within_half_a_step(one, exact)


def test_other_float_dtypes_are_kept() -> None:
    """What is stood for, float16, bfloat16 or float64, stays through every class of operation."""
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        q = hs.quantize(torch.randn(4, 6, dtype=dtype), hs.int8, axis=0)
        for result in (q.t(), q.relu(), q + q, q * 2, q.exp(), q.sum(), q @ q.t(), q.dequantize()):
            assert result.dtype == dtype


IN_PLACE: dict[str, Operation] = {
    "add_": lambda t: t.add_(1),
    "iadd": lambda t: t.__iadd__(1),
    "mul_": lambda t: t.mul_(2),
    "zero_": lambda t: t.zero_(),
    "fill_": lambda t: t.fill_(1.0),
    "relu_": lambda t: t.relu_(),
    "clip_": lambda t: t.clip_(0, 1),
    "absolute_": lambda t: t.absolute_(),
    "transpose_": lambda t: t.transpose_(0, 1),
    "copy_": lambda t: t.copy_(torch.ones(t.shape)),
    "resize_": lambda t: t.resize_(2),
    "relu inplace": lambda t: F.relu(t, inplace=True),
    "leaky inplace": lambda t: F.leaky_relu(t, inplace=True),
    "leaky positional": lambda t: F.leaky_relu(t, 0.1, True),
    "hardtanh inplace": lambda t: F.hardtanh(t, inplace=True),
    "dropout inplace": lambda t: F.dropout(t, 0.5, training=True, inplace=True),
    "out": lambda t: torch.add(torch.ones(t.shape), 1, out=t),
    "matmul out": lambda t: torch.matmul(torch.ones(t.shape), torch.ones(t.shape).mT, out=t),
    "foreach": lambda t: torch._foreach_add_([t], 1.0),
    "normal_": torch.nn.init.normal_,
    "kaiming": torch.nn.init.kaiming_uniform_,
    "index_put_": lambda t: t.index_put_((torch.tensor([0]),), torch.tensor(1.0)),
    "max_norm": lambda t: F.embedding(torch.tensor([0]), t, max_norm=0.1),
}


@pytest.mark.parametrize("name", sorted(IN_PLACE))
@pytest.mark.parametrize("spec", [QSpec(hs.int8, PerChannel(0)), QSpec(hs.int4)])
def test_in_place_is_refused_never_lost(name: str, spec: QSpec) -> None:
    """An in-place change raises MutationError and leaves the tensor as it was."""
    q = hs.quantize(torch.randn(4, 4), spec)
    before = stored_copy(q)
    with pytest.raises(MutationError):
        IN_PLACE[name](q)
    assert_unchanged(q, before)


def test_mutation_errors_say_what_to_do() -> None:
    """The operator is named, and a way that works."""
    q = hs.quantize(torch.randn(4), hs.int8)
    with pytest.raises(MutationError) as error:
        q.add_(1)
    assert str(error.value) == (
        "aten.add_ would change a quantized tensor in place: use the form that returns a new "
        "tensor, or change q.dequantize() and quantize that"
    )
    with pytest.raises(MutationError) as error:
        q[0] = 1.0
    assert str(error.value) == (
        "q[...] = value would change a quantized tensor in place: change q.dequantize() and "
        "quantize that, or build new integers and use hs.from_int_repr"
    )
    with pytest.raises(MutationError) as error:
        q.data = torch.zeros(4)
    assert str(error.value) == (
        "q.data = value would change a quantized tensor in place: assign a new tensor instead"
    )


def test_floats_may_be_changed_by_quantized_tensors() -> None:
    """x += q, x.copy_(q) and x[0] = q change the float x as q's floats would."""
    q, x = hs.quantize(torch.randn(4), hs.int8), torch.zeros(2, 4)
    x += q
    assert torch.equal(x[0], q.dequantize())
    x[1] = q
    assert torch.equal(torch.zeros(4).copy_(q), x[1])


def test_no_fallback_names_the_operation() -> None:
    """Under no_fallback what would leave the integers raises, by the name that was called."""
    q = hs.quantize(torch.randn(4, 4), hs.int8)
    calls: dict[str, Any] = {
        "aten.exp": q.exp,
        "softmax": lambda: F.softmax(q, -1),
        "einsum": lambda: torch.einsum("ij->ji", q),
        "linear": lambda: F.linear(torch.ones(1, 4), q),
        "matmul": lambda: q @ torch.ones(4, 1),
        "aten.add": lambda: q + torch.ones(4, 4),
    }
    for name, call in calls.items():
        with hs.no_fallback(), pytest.raises(FallbackError) as error:
            call()
        assert str(error.value) == (
            f"{name} has no integer form: it would dequantize its input, and no_fallback() is in "
            "force; call .dequantize() where floats are meant"
        )
        assert isinstance(call(), Tensor)


def test_no_fallback_leaves_integers_alone() -> None:
    """Views, order, arithmetic, exact products, comparison and new tensors need no floats."""
    q = hs.quantize(torch.randn(4, 4), hs.int8)
    with hs.no_fallback():
        kept = [q.t(), q[0], q.relu(), q + q, q * 2, torch.cat([q, q]), q.max(), q.sort().values]
        plain = [q @ q, F.linear(q, q), q.sum(), q > 0, torch.zeros_like(q), q.new_empty(3)]
    assert all(isinstance(one, QTensor) for one in kept)
    assert not any(isinstance(one, QTensor) for one in plain)


def test_no_fallback_is_per_thread_and_ends() -> None:
    """Another thread is not bound by it, and it ends with its block, also after an error."""
    q, found = hs.quantize(torch.randn(4), hs.int8), []
    with hs.no_fallback():
        thread = threading.Thread(target=lambda: found.append(q.exp()))
        thread.start()
        thread.join()
    assert len(found) == 1
    with pytest.raises(KeyError), hs.no_fallback():
        raise KeyError
    q.exp()


def test_modes_change_nothing() -> None:
    """The same results under no_grad, inference_mode and autocast."""
    q, w = hs.quantize(torch.randn(3, 4), hs.int8), hs.quantize(torch.randn(5, 4), hs.int8, axis=0)

    def results() -> list[Any]:
        found = [q.t(), q[0], q.relu(), q + q, q.chunk(2)[1], q.flatten(), F.linear(q, w), q.exp()]
        return [one.dequantize() for one in found]

    expected = results()
    for mode in (torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16)):
        with mode:
            assert all(map(torch.equal, results(), expected))


def test_results_do_not_share_scales_with_their_input() -> None:
    """Loading new values into a tensor leaves alone what was computed from it before."""
    q = hs.quantize(torch.randn(4, 4), hs.int8, axis=0)
    made = [q.relu(), q + q, q * 2, q.clone(), -q]
    before = [one.dequantize() for one in made]
    q.copy_(hs.quantize(100 * torch.randn(4, 4), hs.int8, axis=0))
    assert all(map(torch.equal, before, (one.dequantize() for one in made)))


def test_new_tensors_take_the_shape_only() -> None:
    """zeros_like and its kin give plain floats of the dtype that q stands for."""
    q = hs.quantize(torch.randn(2, 3, dtype=torch.float16), hs.int4)
    for made in (torch.zeros_like(q), torch.ones_like(q), torch.rand_like(q), q.new_zeros(2, 3)):
        assert type(made) is Tensor
        assert made.dtype == torch.float16
        assert made.shape == (2, 3)
    assert torch.full_like(q, 2, dtype=torch.float64).dtype == torch.float64


def test_every_kind_of_result_has_scales_that_fit() -> None:
    """A chain through all classes keeps the invariant of the scale's shape at each step."""
    q = hs.quantize(torch.randn(2, 4, 6, 6), QSpec(hs.uint8, PerChannel(1)))
    steps: tuple[Operation, ...] = (
        lambda t: t.relu(),
        lambda t: t * 0.5,
        lambda t: t + t,
        lambda t: t.flatten(2),
    )
    for step in steps:
        q = step(q)
        assert_scale_fits(q)
        assert q.axis == 1
