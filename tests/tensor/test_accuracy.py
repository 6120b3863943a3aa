"""The error of a quantized tensor: what it says, and where the dtype it stands for ends."""

import math

import pytest
import torch

import halfstep as hs


def test_half_a_step_where_nothing_saturates() -> None:
    """Own range: at most half a step; a known error has its known dB."""
    x = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    error = hs.quantize(x, hs.int8).quantization_error(x)
    assert error.max_steps <= 0.5 + 1e-4
    assert error.saturated <= 0.002
    known = hs.quantize(torch.tensor([3.0, 4.5]), hs.int8, scale=1.0, zero_point=0)
    assert known.quantization_error(torch.tensor([3.0, 4.5])).sqnr == pytest.approx(
        10 * math.log10((9 + 20.25) / 0.25)
    )


@pytest.mark.parametrize(("largest", "dtype"), [(65504.0, torch.float16), (3.4e38, torch.float32)])
def test_an_overflow_is_not_hidden(largest: float, dtype: torch.dtype) -> None:
    """Where the nearest code lies beyond the dtype, the float is infinite, and so is the error."""
    x = torch.tensor([largest, -largest], dtype=dtype)
    q = hs.quantize(x, hs.int8)
    error = q.quantization_error(x)
    assert q.dequantize().isinf().any()
    assert (error.sqnr, error.max_steps) == (-math.inf, math.inf)


def test_bytes_are_those_really_held() -> None:
    """nbytes counts packed integers, scale and zero point, not the floats they stand for."""
    x = torch.randn(8, 64)
    assert hs.quantize(x, hs.int8).nbytes == 512 + 4 + 4
    assert hs.quantize(x, hs.int4, axis=0).nbytes == 256 + 32 + 32
