"""Quantizers of one's own: what they may return, and how their saturation is counted."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import halfstep as hs


class Given:
    """A quantizer that says what integers it means."""

    def __init__(self, spec: hs.QSpec, scale: Any, zero_point: Any) -> None:
        self.spec, self.given = spec, (scale, zero_point)

    def __call__(self, x: Tensor) -> Tensor:
        """Fake-quantize with the given qparams."""
        scale, zero_point = self.given
        return hs.fake_quantize(x, self.spec, scale=scale, zero_point=zero_point)

    def qparams(self) -> tuple[Any, Any]:
        """As they were given."""
        return self.given


PER_CHANNEL = hs.QSpec(hs.int8, hs.PerChannel(-2))


@pytest.mark.parametrize(
    ("spec", "scale", "zero_point"),
    [
        (hs.QSpec(hs.int8), 0.001, 0),
        (hs.QSpec(hs.int8), torch.tensor(0.001), torch.tensor(0)),
        (PER_CHANNEL, torch.full((4,), 0.001), torch.zeros(4, dtype=torch.int64)),
        (PER_CHANNEL, [0.001] * 4, [0] * 4),
    ],
    ids=["numbers", "tensors", "per channel", "lists"],
)
def test_saturation_is_counted_whatever_form_qparams_have(
    spec: hs.QSpec, scale: Any, zero_point: Any
) -> None:
    """Numbers, lists and tensors of any integer dtype, as hs.quantize takes them."""
    model = nn.Sequential(nn.Linear(4, 4))
    with hs.simulate(model, {"0": Given(spec, scale, zero_point)}) as report:
        model(torch.randn(2, 4))
    weight = model[0].weight
    codes = (weight / 0.001).round()
    expected = ((codes < -128) | (codes > 127)).float().mean().item()
    assert report["0"]["weight"].saturated == pytest.approx(expected)
    assert expected > 0


@pytest.mark.parametrize(
    ("returned", "text"),
    [(None, "returned NoneType"), (torch.ones(1), r"returned shape \(1,\) for shape \(4, 4\)")],
)
def test_what_is_no_tensor_of_the_same_shape_is_refused(returned: Any, text: str) -> None:
    """The error names the layer."""
    model = nn.Sequential(nn.Linear(4, 4))
    with (
        hs.simulate(model, {"0": lambda x: returned}),
        pytest.raises(hs.ArgumentError, match=f"the weight of 0: the quantizer {text}"),
    ):
        model(torch.randn(2, 4))
