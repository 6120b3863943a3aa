"""Copies: clone, detach, to another layout, and copy_ between tensors of one format."""

import copy

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep import MutationError, PerChannel, PerGroup, QSpec, QTensor
from tests.tensor.results import single

X = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
SPEC = QSpec(hs.int8, PerChannel(1))


def test_clone_shares_nothing() -> None:
    """A clone has its own integers and scales; detach and alias share them."""
    q = hs.quantize(X, SPEC)
    twin = single(q.clone())
    for part, copied in zip(q.stored(), twin.stored(), strict=True):
        assert torch.equal(part, copied)
        assert part.data_ptr() != copied.data_ptr()
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


def views_that_share() -> list[tuple[QTensor, QTensor]]:
    """Parts of a tensor whose scale is the whole tensor's, or some of it, each with its whole."""
    one, channels, groups = (
        hs.quantize(X, spec) for spec in (QSpec(hs.int8), SPEC, QSpec(hs.int16, PerGroup(3, 5)))
    )
    pairs = [(q[0:1], q) for q in (one, channels, groups)]
    pairs += [(q[:, :, 1], q) for q in (one, channels, groups)]
    pairs += [(q[..., ::5], q) for q in (one, channels)]
    pairs += [(one.as_strided((2, 2), (1, 3)), one)]
    return [(single(part), whole) for part, whole in pairs]


def test_copy_into_a_part_leaves_the_rest() -> None:
    """A part whose scale the rest needs takes integers of that scale, and no others."""
    for part, whole in views_that_share():
        before, qparams = whole.dequantize(), [one.clone() for one in whole.qparams()]
        other = hs.quantize(3 * part.dequantize() + 1, part.spec)
        with pytest.raises(MutationError, match="the target is part of a larger tensor"):
            part.copy_(other)
        assert torch.equal(whole.dequantize(), before)
        scale, zero_point = part.qparams()
        codes = part.int_repr() // 2
        alike = hs.from_int_repr(codes, part.spec, scale=scale, zero_point=zero_point)
        part.copy_(alike)
        assert torch.equal(part.int_repr(), codes)
        assert not torch.equal(whole.dequantize(), before)
        assert all(map(torch.equal, whole.qparams(), qparams))


def test_copy_into_a_view_of_the_whole_reaches_it() -> None:
    """A transposed or reshaped tensor has all the integers and all the scales."""
    q = hs.quantize(X, SPEC)
    other = hs.quantize(5 * X, SPEC)
    q.transpose(0, 1).copy_(other.transpose(0, 1))
    assert torch.equal(q, other)


@pytest.mark.parametrize("dtype", [hs.int4, hs.uint2])
@pytest.mark.parametrize("inference", [False, True])
def test_copy_into_a_packed_view_is_refused(dtype: hs.QDType, inference: bool) -> None:  # noqa: FBT001 (a parameter)
    """Packed integers have no views: a copy into one would be lost."""
    with torch.inference_mode(inference):
        q = hs.quantize(X[0, 0], dtype)
        views = (q[0], q[:2], q.t(), q.view(20), q.t().t(), q[0].detach(), q.as_strided((2,), (1,)))
        for part in views:
            with pytest.raises(MutationError, match="would not reach that tensor"):
                part.copy_(hs.quantize(part.dequantize(), part.spec))
            part.clone().copy_(part)
            copy.deepcopy(part).copy_(part)
        other = hs.quantize(2 * X[0, 0], dtype)
        q.detach().copy_(other)
        assert torch.equal(q, other)


@pytest.mark.parametrize("dtype", [hs.int8, hs.int4])
def test_loading_into_a_parameter_that_is_a_part(dtype: hs.QDType) -> None:
    """load_state_dict copies, so a parameter that shares a scale refuses, and a clone does not."""
    big = hs.quantize(X[0], dtype)
    before, module = big.dequantize(), nn.Module()
    state = {"weight": hs.quantize(9 * X[0, :2], dtype)}
    module.weight = nn.Parameter(big[:2], requires_grad=False)
    with pytest.raises(RuntimeError, match="clone"):
        module.load_state_dict(state)
    assert torch.equal(big.dequantize(), before)
    module.weight = nn.Parameter(big[:2].clone(), requires_grad=False)
    module.load_state_dict(state)
    assert torch.equal(module.weight, state["weight"])
    whole = nn.Module()
    whole.weight = nn.Parameter(hs.quantize(X[0, :2], dtype), requires_grad=False)
    whole.load_state_dict(state)
    assert torch.equal(whole.weight, state["weight"])


def test_copy_in_a_compiled_program() -> None:
    """Between two whole tensors it is the same there."""
    target, source = hs.quantize(X, SPEC), hs.quantize(2 * X, SPEC)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def copied(into: QTensor, value: QTensor) -> torch.Tensor:
        return into.clone().copy_(value)

    assert torch.equal(copied(target, source), source)
