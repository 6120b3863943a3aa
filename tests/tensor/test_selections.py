"""Parts of tensors: which channels they are of, and what cannot be taken apart."""

import pytest
import torch

import halfstep as hs
from halfstep import GranularityError, PerGroup, PerToken, QSpec, QTensor
from tests.tensor.operations import Operation
from tests.tensor.results import single

X = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
CHANNELS = hs.quantize(X, hs.int8, axis=0)
GROUPS = hs.quantize(X, QSpec(hs.uint4, PerGroup(1, 3)))


@pytest.mark.parametrize("rows", [slice(1, 3), slice(None, None, 2), slice(-2, None), [3, 0, 3]])
def test_scales_of_chosen_channels(rows: slice | list[int]) -> None:
    """A choice of channels has their scales, in its order."""
    part = single(CHANNELS[rows])
    assert torch.equal(part.q_per_channel_scales(), CHANNELS.q_per_channel_scales()[rows])
    assert torch.equal(part.dequantize(), CHANNELS.dequantize()[rows])


def test_whole_groups_can_be_taken() -> None:
    """Slices, rolls and flips by whole runs move their scales."""
    assert torch.equal(single(GROUPS[:, 3:]).scale, GROUPS.scale[:, 1:])
    assert torch.equal(single(GROUPS.roll(3, 1)).scale, GROUPS.scale.roll(1, 1))
    assert torch.equal(single(GROUPS.flip(1)).scale, GROUPS.scale.flip(1))
    assert [single(half).spec.granularity for half in GROUPS.chunk(2, 1)] == [PerGroup(1, 3)] * 2


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda q: q[:, 1:], "a slice from 1 to 6 by 1"),
        (lambda q: q[:, ::2], "a slice from 0 to 6 by 2"),
        (lambda q: q.roll(1, 1), "a roll by 1"),
        (lambda q: q.index_select(1, torch.tensor([0])), "index_select"),
        (lambda q: q[:, [0, 1]], "an index"),
    ],
)
def test_torn_groups(call: Operation, text: str) -> None:
    """What tears a run of values that share a scale says so and names the size."""
    with pytest.raises(GranularityError) as error:
        call(GROUPS)
    assert str(error.value) == (
        f"{text} along axis 1 would tear runs of 3 values that share a scale "
        "(PerGroup(axis=1, size=3)): use multiples of 3, or q.dequantize() first"
    )


def test_one_column_of_groups_has_one_scale_per_row() -> None:
    """Selecting along the cut axis leaves one scale for each element of the rest."""
    column = single(GROUPS[:, 4])
    assert torch.equal(column.scale, GROUPS.scale[:, 1])
    assert torch.equal(column.dequantize(), GROUPS.dequantize()[:, 4])
    assert single(GROUPS[2, 4]).q_scale() == GROUPS.scale[2, 1]


def test_indices_out_of_range_raise() -> None:
    """Every way of indexing checks, whether or not the integers are packed."""
    for q in (CHANNELS, GROUPS):
        for index in (9, -9, [9], [-9]):
            with pytest.raises((IndexError, RuntimeError)):
                q[index]
        with pytest.raises((IndexError, RuntimeError)):
            q.index_select(0, torch.tensor([4]))


def test_several_lists_keep_one_scale_only() -> None:
    """Indexing several dimensions at once stays quantized per tensor, else gives floats."""
    whole = hs.quantize(X, hs.uint16)
    picked = whole[[0, 1], [2, 3]]
    assert isinstance(picked, QTensor)
    assert torch.equal(picked.dequantize(), whole.dequantize()[[0, 1], [2, 3]])
    floats = CHANNELS[[0, 1], [2, 3]]
    assert not isinstance(floats, QTensor)
    assert torch.equal(floats, CHANNELS.dequantize()[[0, 1], [2, 3]])


def test_gather_along_rows() -> None:
    """gather along a dimension on which no scale depends keeps the axis."""
    index = torch.tensor([[5, 0], [1, 1]])
    for q in (CHANNELS, hs.quantize(X, QSpec(hs.int8, PerToken()))):
        picked = single(q.gather(1, index))
        assert torch.equal(picked.dequantize(), q.dequantize().gather(1, index))
        assert picked.spec == q.spec
