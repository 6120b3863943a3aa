"""How quantized tensors print, word for word."""

import torch

import halfstep as hs
from halfstep import PerChannel, PerGroup, QSpec, QTensor

X = torch.tensor([[-1.0, 0.0, 2.0], [0.5, 4.0, -8.0]])


def test_per_tensor() -> None:
    """Integers, format, float dtype, then one scale and zero point."""
    q = hs.quantize(torch.tensor([1.0, -1.0]), hs.int8, scale=0.5, zero_point=0)
    assert repr(q) == (
        "QTensor([ 2, -2],\n"
        "        QSpec(int8), dtype=torch.float32,\n"
        "        scale=0.5, zero_point=0)"
    )


def test_per_channel() -> None:
    """Scales as a list, in the order of the channels; the shape where there are several axes."""
    q = hs.quantize(X, hs.int8, axis=1, scale=[0.5, 1.0, 2.0], zero_point=[0, 1, 2])
    assert str(q) == (
        "QTensor([[-2,  1,  3],\n"
        "         [ 1,  5, -2]],\n"
        "        shape=(2, 3), QSpec(int8, PerChannel(axis=1)), dtype=torch.float32,\n"
        "        scale=[0.5000, 1.0000, 2.0000], zero_point=[0, 1, 2])"
    )


def test_a_single_number() -> None:
    """No dimensions: the integer, and a format spec reads the float."""
    q = hs.quantize(torch.tensor(2.0), hs.uint4, scale=1.0, zero_point=1)
    assert repr(q) == (
        "QTensor(3,\n        QSpec(uint4), dtype=torch.float32,\n        scale=1, zero_point=1)"
    )
    assert f"{q:.1f}" == "2.0"
    assert f"{q}" == repr(q)


def test_nothing_to_show() -> None:
    """Empty tensors, and tensors without values, print too."""
    assert repr(hs.quantize(torch.empty(0, 2), hs.int8)).startswith("QTensor([],\n")
    assert repr(hs.quantize(X, hs.int8).to("meta")) == (
        "QTensor(..., shape=(2, 3), QSpec(int8), dtype=torch.float32)"
    )


def test_notebook_view() -> None:
    """A caption, a table of the first integers, and the scales; nothing that is not escaped."""
    q = hs.quantize(X, hs.int8, axis=1, scale=[0.5, 1.0, 2.0], zero_point=[0, 1, 2])
    assert q._repr_html_() == (
        "<table><caption>QTensor (2, 3), QSpec(int8, PerChannel(axis=1)), dtype=torch.float32"
        "</caption><tr><td>-2</td><td>1</td><td>3</td></tr>"
        "<tr><td>1</td><td>5</td><td>-2</td></tr></table>"
        "<p>scale: 0.5, 1, 2</p><p>zero_point: 0, 1, 2</p>"
    )
    meta = q.to("meta")
    assert isinstance(meta, QTensor)
    assert meta._repr_html_().startswith("<p>QTensor (2, 3), ")


def test_notebook_view_of_large_tensors_is_small() -> None:
    """Eight rows, columns and scales at most, whatever the shape."""
    for shape in ((100, 100), (3, 4, 50, 60), (0, 5), (1000,), (0, 4, 5)):
        html = hs.quantize(torch.zeros(shape), QSpec(hs.int8, PerChannel(0)))._repr_html_()
        assert html.count("<tr>") <= 8
        assert html.count("<td>") <= 72
    grouped = hs.quantize(torch.randn(4, 64), QSpec(hs.int4, PerGroup(1, 32)))
    assert "…</p>" not in grouped._repr_html_()
    assert "zero_point" in repr(grouped)
