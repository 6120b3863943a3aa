"""Several codes in a byte."""

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given

from halfstep.numerics import ops
from tests.assertions import assert_same_bits
from tests.strategies import MEMORY_FORMATS, QUICK, Shape, shapes

PACKED = [(2, False), (2, True), (4, False), (4, True)]


def codes(shape: Shape, bits: int, *, signed: bool, seed: int = 0) -> torch.Tensor:
    """Random codes of so many bits."""
    lowest = -(2 ** (bits - 1)) if signed else 0
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(lowest, lowest + 2**bits, shape, generator=generator)
    return drawn.to(torch.int8 if signed else torch.uint8)


@pytest.mark.parametrize("kind", PACKED, ids=str)
@QUICK
@given(shapes(), st.sampled_from(sorted(MEMORY_FORMATS)), st.integers(0, 2**31))
def test_unpack_inverts_pack(kind: tuple[int, bool], shape: Shape, layout: str, seed: int) -> None:
    """Every code of every shape and memory format comes back; the bytes are as few as can be."""
    bits, signed = kind
    ints = MEMORY_FORMATS[layout](codes(shape, bits, signed=signed, seed=seed))
    packed = ops.pack(ints, bits)
    assert packed.shape == (-(-ints.numel() * bits // 8),)
    assert packed.dtype == torch.uint8
    back = ops.unpack(packed, bits, signed, shape)
    assert_same_bits(back, ints.contiguous())
    assert back.is_contiguous()


@pytest.mark.parametrize(
    ("ints", "bits", "expected"),
    [
        ([1, 2, 3], 4, [0x21, 0x03]),
        ([-1, 7, -8, 0], 4, [0x7F, 0x08]),
        ([0, 1, 2, 3, 1], 2, [0b11100100, 0b01]),
        ([-1, -2, 1, 0], 2, [0b00011011]),
        ([], 4, []),
    ],
)
def test_the_first_code_has_the_lowest_bits(
    ints: list[int], bits: int, expected: list[int]
) -> None:
    """Row-major, lowest bits first, two's complement, and unused bits are 0."""
    assert ops.pack(torch.tensor(ints, dtype=torch.int8), bits).tolist() == expected


@pytest.mark.parametrize(("bits", "signed"), PACKED)
def test_unpack_reads_every_byte(bits: int, *, signed: bool) -> None:
    """All 256 bytes unpack to the codes that their bits say, by integer arithmetic."""
    every = torch.arange(256, dtype=torch.uint8)
    back = ops.unpack(every, bits, signed, (256, 8 // bits))
    for byte, row in enumerate(back.tolist()):
        unsigned = [byte >> place & (2**bits - 1) for place in range(0, 8, bits)]
        wrap = 2**bits if signed else 0
        assert row == [code - wrap * (code >= 2 ** (bits - 1)) for code in unsigned]
    assert_same_bits(ops.pack(back, bits), every)


@pytest.mark.parametrize("bits", [2, 4])
def test_packing_onnx_agrees(bits: int) -> None:
    """The bytes are those of ONNX's INT4, UINT4, INT2 and UINT2 tensors."""
    onnx = pytest.importorskip("onnx")
    for signed in (False, True):
        ints = codes((3, 5), bits, signed=signed)
        kind = getattr(onnx.TensorProto, f"{'' if signed else 'U'}INT{bits}")
        proto = onnx.helper.make_tensor("w", kind, ints.shape, ints.flatten().tolist())
        stored = onnx.numpy_helper.to_array(proto).astype("int8" if signed else "uint8")
        assert torch.equal(torch.from_numpy(stored), ints)
        raw = onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(proto)).raw_data
        assert list(raw) == ops.pack(ints, bits).tolist()
