"""Embedding of a quantized table: only the rows that are asked for become floats."""

import pytest
import torch
import torch.nn.functional as F

import halfstep as hs
from halfstep import PerChannel, PerGroup, PerTensor, QSpec

TABLE = torch.randn(10, 4, generator=torch.Generator().manual_seed(0))
ROWS = torch.tensor([[1, 9, 9], [0, 3, 1]])


@pytest.mark.parametrize(
    "spec",
    [
        QSpec(hs.int8),
        QSpec(hs.uint4, PerChannel(0)),
        QSpec(hs.int8, PerChannel(1)),
        QSpec(hs.int4, PerGroup(1, 2)),
        QSpec(hs.int8, PerGroup(0, 5)),
        QSpec(hs.uint16, PerTensor()),
        QSpec(hs.uint8, PerChannel(0), float_zero_point=True),
    ],
    ids=repr,
)
def test_embedding(spec: QSpec) -> None:
    """The rows of the dequantized table in every bit, also as summed bags."""
    q = hs.quantize(TABLE, spec)
    assert torch.equal(F.embedding(ROWS, q), q.dequantize()[ROWS])
    assert torch.equal(F.embedding(ROWS.int(), q, padding_idx=0), q.dequantize()[ROWS])
    found = F.embedding_bag(ROWS, q, mode="sum")
    assert torch.allclose(found, q.dequantize()[ROWS].sum(1))


def test_embedding_checks_its_indices() -> None:
    """An index beyond the table raises."""
    for index in (10, -11):
        with pytest.raises((IndexError, RuntimeError)):
            F.embedding(torch.tensor([index]), hs.quantize(TABLE, hs.int8, axis=0))


def test_embedding_needs_no_fallback() -> None:
    """Looking rows up is allowed where leaving the integers is not."""
    q = hs.quantize(TABLE, hs.int4, axis=0)
    with hs.no_fallback():
        found = F.embedding(ROWS, q)
    assert torch.equal(found, q.dequantize()[ROWS])
