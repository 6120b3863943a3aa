"""Every view of a quantized tensor is what quantizing the view would have given."""

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

import halfstep as hs
from halfstep import GranularityError, PerChannel, PerGroup, PerTensor, PerToken, QSpec, QTensor
from tests.assertions import assert_same_bits
from tests.strategies import QUICK, qtensors
from tests.tensor.operations import VIEWS, Operation
from tests.tensor.results import (
    assert_scale_fits,
    assert_unchanged,
    outcome,
    single,
    stored_copy,
    wide,
)

FEW = settings(QUICK, max_examples=20)
# Parts that repeat scales beside each other join only where that is one format again.
REFITTED = ("cat", "stack")
X = torch.arange(120.0).reshape(2, 4, 5, 3)


def per_channel(axis: int) -> QTensor:
    """A (2, 4, 5, 3) tensor whose every element is the scale of its channel: 1, 2, 3, ..."""
    count = X.shape[axis]
    ints = torch.ones(X.shape, dtype=torch.int8)
    spec = QSpec(hs.int8, PerChannel(axis))
    return hs.from_int_repr(ints, spec, scale=torch.arange(1.0, count + 1), zero_point=0)


def requantized(x: Tensor, like: QTensor) -> QTensor:
    """The floats x quantized with the format and qparams of another tensor."""
    return hs.quantize(x, like.spec, scale=like.scale, zero_point=like.zero_point)


@pytest.mark.parametrize("name", sorted(VIEWS))
@given(q=qtensors())
@FEW
def test_view_of_quantized_is_quantized_view(name: str, q: QTensor) -> None:
    """The same integers, the same floats, scales where they belong, and an untouched input."""
    view, before = VIEWS[name], stored_copy(q)
    floats, ints = outcome(view, q.dequantize()), outcome(view, wide(q.int_repr()))
    found = outcome(view, q)
    assert_unchanged(q, before)
    if isinstance(floats, Exception) or isinstance(ints, Exception):
        assert isinstance(found, Exception)
    elif isinstance(found, Exception):
        assert isinstance(found, GranularityError), repr(found)
        assert not isinstance(q.spec.granularity, PerTensor)
    else:
        for one, values, codes in zip(found, floats, ints, strict=True):
            if isinstance(one, QTensor) and not name.startswith(REFITTED):
                assert_scale_fits(one)
                assert one.dtype == q.dtype
                if not name.startswith("pad"):  # the integers of its border are zero points
                    assert_same_bits(wide(one.int_repr()), codes)
            if not (isinstance(one, QTensor) and name.startswith(REFITTED)):
                assert_same_bits(one.dequantize() if isinstance(one, QTensor) else one, values)


@given(q=qtensors(max_bits=16, float_zero_point=False, min_side=1))
@QUICK
def test_quantizing_the_view_gives_the_same(q: QTensor) -> None:
    """quantize(view(x)) with the view's qparams gives the view's integers, for every view."""
    x = q.float().dequantize()
    for name, view in VIEWS.items():
        found = outcome(view, q)
        floats = outcome(view, x)
        if isinstance(found, Exception) or isinstance(floats, Exception):
            continue
        for one, values in zip(found, floats, strict=True):
            if isinstance(one, QTensor) and q.dtype == torch.float32:
                assert torch.equal(requantized(values, one).int_repr(), one.int_repr()), name


@pytest.mark.parametrize("axis", range(4))
@pytest.mark.parametrize("name", sorted(VIEWS))
def test_axis_is_where_the_scales_went(name: str, axis: int) -> None:
    """The axis of a view is the dimension along which the floats, here each its scale, change."""
    found = outcome(VIEWS[name], per_channel(axis))
    if isinstance(found, Exception):
        return
    for one in found:
        values = one.dequantize() if isinstance(one, QTensor) else one
        changing = [dim for dim in range(values.ndim) if bool((values.diff(dim=dim) != 0).any())]
        if isinstance(one, QTensor) and not name.startswith(("pad", *REFITTED)):
            assert changing in ([], [one.axis])
            assert one.axis is None or one.shape[one.axis] == one.q_per_channel_scales().numel()


@pytest.mark.parametrize(
    ("view", "axis"),
    [
        (lambda t: t.transpose(0, 1), 0),
        (lambda t: t.permute(3, 2, 1, 0), 2),
        (lambda t: t.flatten(2), 1),
        (lambda t: t.flatten(2).unflatten(2, (5, 3)), 1),
        (lambda t: t.unsqueeze(0), 2),
        (lambda t: t.unsqueeze(2), 1),
        (lambda t: t[:1].squeeze(), 0),
        (lambda t: t.expand(7, 2, 4, 5, 3), 2),
        (lambda t: t[:, 1:3], 1),
        (lambda t: t[1], 0),
        (lambda t: t[..., 0], 1),
        (lambda t: t[:, 2], None),
        (lambda t: t[:, [3, 1]], 1),
        (lambda t: t.flip(1), 1),
        (lambda t: t.movedim(1, -1), 3),
        (lambda t: t.mT, 1),
        (lambda t: t.contiguous(memory_format=torch.channels_last), 1),
    ],
)
def test_axis_after_a_view(view: Operation, axis: int | None) -> None:
    """The channel axis of (2, 4, 5, 3) along 1, written down by hand for the usual views."""
    assert single(view(per_channel(1))).axis == axis


def test_selecting_along_the_axis_is_per_tensor() -> None:
    """One channel of a per-channel tensor has one scale, and answers as per tensor."""
    row = single(per_channel(1)[:, 2])
    assert row.spec.granularity == PerTensor()
    assert row.q_scale() == 3.0
    assert row.axis is None


@pytest.mark.parametrize("shape", [(8, 5, 3), (120,), (2, 2, 2, 5, 3), (2, 20, 3)])
def test_merging_or_cutting_the_axis_raises(shape: tuple[int, ...]) -> None:
    """A reshape that gives the channels no dimension of their own says what it would do."""
    with pytest.raises(GranularityError) as error:
        per_channel(1).reshape(shape)
    assert str(error.value) == (
        f"a view from (2, 4, 5, 3) to {shape} would merge or cut channel axis 1, which has 4 "
        "scales (PerChannel(axis=1)): keep that axis whole, or reshape q.dequantize()"
    )


def test_tearing_a_group_raises() -> None:
    """A reshape, slice or index that would split a run of values with one scale says so."""
    q = hs.quantize(torch.randn(4, 6), QSpec(hs.int8, PerGroup(1, 3)))
    with pytest.raises(GranularityError) as error:
        q.reshape(4, 3, 2)
    assert str(error.value) == (
        "a view from (4, 6) to (4, 3, 2) would merge or cut axis 1, whose runs share a scale "
        "(PerGroup(axis=1, size=3)): keep that axis whole, or reshape q.dequantize()"
    )
    with pytest.raises(GranularityError) as error:
        q[:, 1:4]
    assert str(error.value) == (
        "a slice from 1 to 4 by 1 along axis 1 would tear runs of 3 values that share a scale "
        "(PerGroup(axis=1, size=3)): use multiples of 3, or q.dequantize() first"
    )


def test_groups_follow_reshapes_that_keep_runs_whole() -> None:
    """Runs stay runs when the cut axis is flattened with others or split at their borders."""
    q = hs.quantize(torch.randn(4, 6), QSpec(hs.int8, PerGroup(1, 3)))
    assert single(q.flatten()).spec.granularity == PerGroup(0, 3)
    assert single(q.reshape(4, 2, 3)).spec.granularity == PerGroup(2, 3)
    assert single(q.t()).spec.granularity == PerGroup(0, 3)


def test_part_of_a_row_is_a_row() -> None:
    """Per token, any part of the last axis still has one scale for each row."""
    q = hs.quantize(torch.randn(4, 6), QSpec(hs.int8, PerToken()))
    for part in (q[:, 1:4], q[:, [5, 0]], q.roll(1, 1), q.flip(1)):
        assert single(part).spec.granularity == PerToken()
    assert single(q.t()).spec.granularity == PerGroup(0, 6)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.transpose(0, 7),
        lambda t: t.permute(0, 1, 2, 9),
        lambda t: t.unsqueeze(6),
        lambda t: t.squeeze(5),
        lambda t: t.select(4, 0),
        lambda t: t.sum(5),
        lambda t: t.index_select(9, torch.tensor([0])),
        lambda t: t.flip(4),
        lambda t: t.unbind(4),
    ],
)
def test_a_dimension_that_is_not_there_raises(view: Operation) -> None:
    """No dimension out of range is wrapped around to one that exists."""
    with pytest.raises((hs.ArgumentError, IndexError)):
        view(per_channel(1))


def test_views_share_memory() -> None:
    """Views of tensors that are not packed share their integers, and packed ones are copies."""
    q = hs.quantize(X, hs.int8, axis=1)
    assert single(q.transpose(0, 1)).ints.data_ptr() == q.ints.data_ptr()
    packed = hs.quantize(X, hs.int4, axis=1)
    assert single(packed.transpose(0, 1)).stored()[0].data_ptr() != packed.stored()[0].data_ptr()


def test_as_strided_is_per_tensor_only() -> None:
    """Elements by their place in memory are right where one scale serves all, else refused."""
    x = torch.randn(4, 6)
    q = hs.quantize(x, hs.int8)[:, 1:]
    strided = single(q.as_strided((2, 2), (6, 2)))
    assert torch.equal(strided.dequantize(), q.dequantize()[:2, 0:4:2])
    with pytest.raises(GranularityError, match="as_strided reads memory, and the scales of"):
        hs.quantize(x, hs.int8, axis=0).as_strided((2, 2), (6, 1))
