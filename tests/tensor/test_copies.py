"""Copies: clone, detach, to another layout, and copy_ between tensors of one format."""

import pytest
import torch

import halfstep as hs
from halfstep import MutationError, PerChannel, QSpec, QTensor
from tests.tensor.results import single

X = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
SPEC = QSpec(hs.int8, PerChannel(1))


def test_clone_shares_nothing() -> None:
    """A clone has its own integers and scales; detach and alias share them."""
    q = hs.quantize(X, SPEC)
    twin = single(q.clone())
    for part, copy in zip(q.stored(), twin.stored(), strict=True):
        assert torch.equal(part, copy)
        assert part.data_ptr() != copy.data_ptr()
    assert single(q.detach()).ints.data_ptr() == q.ints.data_ptr()


def test_memory_formats() -> None:
    """contiguous, clone and to change the order of the integers in memory, and nothing else."""
    q, last = hs.quantize(X, SPEC), torch.channels_last
    for made in (
        q.contiguous(memory_format=last),
        q.clone(memory_format=last),
        q.to(memory_format=last),
    ):
        assert made.is_contiguous(memory_format=last)
        assert single(made).int_repr().is_contiguous(memory_format=last)
        assert torch.equal(made, q)
    assert q.contiguous() is q


@pytest.mark.parametrize("dtype", [hs.int8, hs.int4, hs.uint16])
def test_copy_between_equal_formats(dtype: hs.QDType) -> None:
    """copy_ takes integers and scales over, also from another float dtype."""
    spec = QSpec(dtype, PerChannel(1))
    target, source = hs.quantize(X, spec), hs.quantize(2 * X.double(), spec)
    target.copy_(source)
    assert torch.equal(target.int_repr(), source.int_repr())
    assert torch.equal(target.scale, source.scale)
    assert target.dtype == torch.float32


def test_copy_refuses_other_formats() -> None:
    """Floats, other formats and other shapes are refused, and the target stays."""
    target = hs.quantize(X, SPEC)
    before = target.int_repr()
    for source in (X, hs.quantize(X, hs.int8), hs.quantize(X[:1], SPEC)):
        with pytest.raises(MutationError):
            target.copy_(source)
    with pytest.raises(MutationError) as error:
        target.copy_(X)
    assert str(error.value) == (
        "torch.float32 values cannot be copied into a tensor quantized as QSpec(int8, "
        "PerChannel(axis=1)): quantize them first with the same spec and shape, or load with "
        "assign=True"
    )
    assert torch.equal(target.int_repr(), before)


def test_storage_is_packed() -> None:
    """2- and 4-bit integers take a quarter and half a byte each; others their own."""
    for dtype, expected in ((hs.int2, 30), (hs.uint4, 60), (hs.int3, 120), (hs.int16, 240)):
        q = hs.quantize(X, dtype)
        assert isinstance(q, QTensor)
        assert q.stored()[0].nbytes == expected
