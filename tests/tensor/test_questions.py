"""The old questions, as methods and as functions of torch, and the right one for each tensor."""

import pytest
import torch

import halfstep as hs
from halfstep import GranularityError, PerChannel, PerGroup, PerToken, QSpec

X = torch.tensor([[-1.0, 0.0, 2.0], [0.5, 4.0, -8.0]])
WHOLE = hs.quantize(X, hs.int8, scale=0.5, zero_point=3)
CHANNELS = hs.quantize(X, hs.int8, axis=1, scale=[0.5, 1.0, 2.0], zero_point=[0, 1, 2])
ROWS = hs.quantize(X, QSpec(hs.int8, PerToken()))


def test_per_tensor_answers() -> None:
    """One scale, one zero point, no axis."""
    assert (WHOLE.q_scale(), WHOLE.q_zero_point(), WHOLE.axis) == (0.5, 3, None)
    assert WHOLE.qscheme() == torch.per_tensor_affine
    assert (torch.q_scale(WHOLE), torch.q_zero_point(WHOLE)) == (0.5, 3)


def test_per_channel_answers() -> None:
    """The scales and zero points in one dimension, and their axis."""
    assert CHANNELS.q_per_channel_scales().tolist() == [0.5, 1.0, 2.0]
    assert CHANNELS.q_per_channel_zero_points().tolist() == [0, 1, 2]
    assert CHANNELS.q_per_channel_axis() == CHANNELS.axis == 1
    assert CHANNELS.qscheme() == torch.per_channel_affine
    assert torch.q_per_channel_axis(CHANNELS) == 1
    assert torch.equal(torch.q_per_channel_scales(CHANNELS), CHANNELS.q_per_channel_scales())
    assert torch.q_per_channel_zero_points(CHANNELS).tolist() == [0, 1, 2]


def test_float_zero_points_have_their_own_scheme() -> None:
    """The form of old embedding tables is named, and answers with floats."""
    q = hs.quantize(X, QSpec(hs.uint8, PerChannel(0), float_zero_point=True))
    assert q.qscheme() == torch.per_channel_affine_float_qparams
    assert q.q_per_channel_zero_points().dtype == torch.float32


def test_functional_forms() -> None:
    """torch.int_repr and torch.dequantize, also of a list and by keyword."""
    assert torch.equal(torch.int_repr(WHOLE), WHOLE.int_repr())
    assert torch.equal(torch.dequantize(WHOLE), WHOLE.dequantize())
    assert [type(x) for x in torch.dequantize([WHOLE, CHANNELS])] == [torch.Tensor] * 2
    assert torch.equal(torch.int_repr(input=WHOLE), WHOLE.int_repr())


@pytest.mark.parametrize(
    ("question", "q", "message"),
    [
        (
            "q_scale",
            CHANNELS,
            (
                "q_scale() asks for one number, but this tensor is quantized with "
                "PerChannel(axis=1): use q_per_channel_scales()"
            ),
        ),
        (
            "q_zero_point",
            ROWS,
            (
                "q_zero_point() asks for one number, but this tensor is quantized with PerToken(): "
                "use q.zero_point"
            ),
        ),
        (
            "q_per_channel_axis",
            WHOLE,
            (
                "q_per_channel_axis() asks for a channel axis, but this tensor is quantized per "
                "tensor: use q_scale() and q_zero_point(); q.axis is None"
            ),
        ),
        (
            "q_per_channel_scales",
            ROWS,
            (
                "q_per_channel_scales() asks for a channel axis, but this tensor is quantized with "
                "PerToken(): use q.scale, q.zero_point and q.axis"
            ),
        ),
        ("qscheme", ROWS, "qscheme() has no name for PerToken(): ask for q.spec instead"),
    ],
)
def test_wrong_questions_name_the_right_one(question: str, q: hs.QTensor, message: str) -> None:
    """The exact text, from the method and from torch's function of that name."""
    with pytest.raises(GranularityError) as error:
        getattr(q, question)()
    assert str(error.value) == message
    if hasattr(torch, question) and question != "qscheme":
        with pytest.raises(GranularityError):
            getattr(torch, question)(q)


def test_scale_and_zero_point_have_all_dimensions() -> None:
    """scale and zero_point broadcast to the tensor, so dequantizing by hand is one line."""
    for q in (WHOLE, CHANNELS, ROWS):
        assert torch.equal((q.int_repr().int() - q.zero_point) * q.scale, q.dequantize())
    assert CHANNELS.scale.shape == (1, 3)
    assert hs.quantize(X, QSpec(hs.int8, PerGroup(1, 3))).scale.shape == (2, 1)
