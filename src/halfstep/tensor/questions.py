"""The questions that torch's own quantized tensors answered, under the same names."""

from typing import Any

import torch
from torch import Tensor

from halfstep.errors import GranularityError
from halfstep.spec import PerChannel, PerTensor, QSpec

_SCHEMES = {PerTensor: "per_tensor_affine", PerChannel: "per_channel_affine"}


class Questions:
    """``q_scale()`` and its kin; where the granularity is another, it names the right question."""

    _codes: Tensor
    _scale: Tensor
    _zero_point: Tensor
    _spec: QSpec

    @property
    def nbytes(self) -> int:
        """The bytes really held: packed integers, scale and zero point.

        >>> import halfstep as hs, torch
        >>> hs.quantize(torch.ones(64), hs.int4).nbytes  # 32, and 4 each for scale and zero point
        40
        """
        return self._codes.nbytes + self._scale.nbytes + self._zero_point.nbytes

    def q_scale(self) -> float:
        """The one scale of a tensor quantized per tensor.

        Raises ``GranularityError`` for any other, and says what to ask instead.

        >>> import halfstep as hs, torch
        >>> hs.quantize(torch.ones(2), hs.int8, scale=0.5, zero_point=3).q_scale()
        0.5
        """
        return float(self._single("scale", self._scale))

    def q_zero_point(self) -> int:
        """The one zero point of a tensor quantized per tensor; a float in the float form.

        Raises ``GranularityError`` for any other, and says what to ask instead.

        >>> import halfstep as hs, torch
        >>> hs.quantize(torch.ones(2), hs.int8, scale=0.5, zero_point=3).q_zero_point()
        3
        """
        zero_point: int = self._single("zero_point", self._zero_point)
        return zero_point

    def q_per_channel_scales(self) -> Tensor:
        """The scales, one for each channel, as a 1-d tensor.

        Raises ``GranularityError`` for a tensor that is not quantized per channel.

        >>> import halfstep as hs, torch
        >>> q = hs.quantize(torch.ones(2, 3), hs.int8, axis=0, scale=[0.5, 0.25], zero_point=0)
        >>> q.q_per_channel_scales()
        tensor([0.5000, 0.2500])
        """
        self._channel_axis("q_per_channel_scales")
        return self._scale.flatten()

    def q_per_channel_zero_points(self) -> Tensor:
        """The zero points, one for each channel, as a 1-d tensor.

        Raises ``GranularityError`` for a tensor that is not quantized per channel.

        >>> import halfstep as hs, torch
        >>> q = hs.quantize(torch.ones(2, 3), hs.int8, axis=0, scale=0.5, zero_point=[0, 7])
        >>> q.q_per_channel_zero_points()
        tensor([0, 7], dtype=torch.int32)
        """
        self._channel_axis("q_per_channel_zero_points")
        return self._zero_point.flatten()

    def q_per_channel_axis(self) -> int:
        """The axis that has one scale for each index.

        Raises ``GranularityError`` for a tensor that is not quantized per channel.

        >>> import halfstep as hs, torch
        >>> hs.quantize(torch.ones(2, 3), hs.int8, axis=-1).q_per_channel_axis()
        1
        """
        return self._channel_axis("q_per_channel_axis")

    def qscheme(self) -> Any:
        """The ``torch.qscheme`` of the tensor, or its name once torch has none.

        Raises ``GranularityError`` per group and per token, for which torch never had one.

        >>> import halfstep as hs, torch
        >>> str(hs.quantize(torch.ones(2, 3), hs.int8, axis=0).qscheme())
        'torch.per_channel_affine'
        """
        name = _SCHEMES.get(type(self._spec.granularity))
        if name is None:
            raise GranularityError(
                f"qscheme() has no name for {self._spec.granularity}: ask for q.spec instead"
            )
        name += "_float_qparams" * (self._spec.float_zero_point and name != "per_tensor_affine")
        return getattr(torch, name, name)

    def _single(self, asked: str, values: Tensor) -> Any:
        granularity = self._spec.granularity
        if isinstance(granularity, PerTensor):
            return values.item()
        per_channel = isinstance(granularity, PerChannel)
        raise GranularityError(
            f"q_{asked}() asks for one number, but this tensor is quantized with {granularity}: "
            + (f"use q_per_channel_{asked}s()" if per_channel else f"use q.{asked}")
        )

    def _channel_axis(self, question: str) -> int:
        granularity = self._spec.granularity
        if isinstance(granularity, PerChannel):
            return granularity.axis
        if isinstance(granularity, PerTensor):
            what, instead = "per tensor", "q_scale() and q_zero_point(); q.axis is None"
        else:
            what, instead = f"with {granularity}", "q.scale, q.zero_point and q.axis"
        raise GranularityError(
            f"{question}() asks for a channel axis, but this tensor is quantized {what}: "
            f"use {instead}"
        )
