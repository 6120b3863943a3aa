"""What a simulation did to each layer, counted while it runs, in constant memory."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from halfstep.errors import ArgumentError, HalfstepError
from halfstep.flows.quantizers import RangeQuantizer
from halfstep.numerics import ops
from halfstep.numerics.checks import resolve_qparams
from halfstep.numerics.metrics import sqnr_of
from halfstep.observe import FakeQuantize, Observer


@dataclass(slots=True)
class Tally:
    """The error of one quantizer over all that it has seen.

    values: how many numbers passed.
    sqnr: signal-to-quantization-noise ratio in dB; infinite before any noise.
    saturated: the share of values that needed a code beyond the format's bounds; None for a
        quantizer that does not say what integers it means.
    """

    values: int = 0
    signal: float = 0.0
    noise: float = 0.0
    clipped: int | None = 0

    def add(self, x: Tensor, y: Tensor, quantizer: Callable[[Tensor], Tensor]) -> None:
        """Count one tensor and what became of it."""
        with torch.no_grad():
            x64, y64 = x.detach().double(), y.detach().double()
            self.values += x.numel()
            self.signal += float(x64.square().sum())
            self.noise += float((x64 - y64).square().sum())
            clipped = _clipped(x.detach(), quantizer)
            self.clipped = (
                None if self.clipped is None or clipped is None else self.clipped + clipped
            )

    @property
    def sqnr(self) -> float:
        """10 log10(signal / noise) in dB."""
        return sqnr_of(self.signal, self.noise)

    @property
    def saturated(self) -> float | None:
        """The share of values beyond the format's bounds, 0 to 1."""
        return None if self.clipped is None else self.clipped / max(self.values, 1)


def _clipped(x: Tensor, quantizer: object) -> int | None:
    """How many values a quantizer clips, if it says what integers it means."""
    spec, ask = getattr(quantizer, "spec", None), getattr(quantizer, "qparams", None)
    if spec is None or ask is None:
        return None
    if not getattr(quantizer, "quantizing", True):
        return 0
    scale, zero_point = ask()
    scale, zero_point = resolve_qparams(
        x.shape, spec.normalized(x.ndim), scale, zero_point, x.device
    )
    _, inside = ops.fake_quantize_with_mask(x, scale, zero_point, spec.qmin, spec.qmax)
    return x.numel() - int(inside.sum())


class Named:
    """A quantizer that names its layer when it fails."""

    def __init__(self, quantizer: Callable[[Tensor], Tensor], title: str) -> None:
        self.quantizer, self.title = quantizer, title

    def __call__(self, x: Tensor) -> Tensor:
        """The quantized x."""
        try:
            return self.quantized(x)
        except HalfstepError as error:
            raise type(error)(f"{self.title}: {error}") from error

    def quantized(self, x: Tensor) -> Tensor:
        """What the quantizer makes of x, which must be a tensor of x's shape."""
        # A function of the user's gets a copy, so that one that works in place harms nothing.
        ours = isinstance(self.quantizer, RangeQuantizer | FakeQuantize | Observer)
        y: object = self.quantizer(x if ours else x.clone())
        if not isinstance(y, Tensor) or (y.shape, y.dtype) != (x.shape, x.dtype):
            what = f"{y.dtype} {tuple(y.shape)}" if isinstance(y, Tensor) else type(y).__name__
            raise ArgumentError(
                f"the quantizer returned {what} for {x.dtype} {tuple(x.shape)}: it must return a "
                "tensor of the same shape and dtype"
            )
        return y


class Counted(Named):
    """A named quantizer that keeps a tally."""

    def __init__(self, quantizer: Callable[[Tensor], Tensor], title: str) -> None:
        super().__init__(quantizer, title)
        self.tally = Tally()

    def quantized(self, x: Tensor) -> Tensor:
        """What the quantizer makes of x, counted."""
        y = super().quantized(x)
        self.tally.add(x, y, self.quantizer)
        return y


class SimulationReport(Mapping[str, dict[str, Tally]]):
    """What a simulation did, layer by layer; prints as a table, the noisiest first.

    ``report["conv1"]["weight"]`` is the ``Tally`` of one slot (weight, input, output) of a layer.

    >>> import halfstep as hs, torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(64, 64))
    >>> with hs.simulate(model, {"0": hs.int8}) as report:
    ...     y = model(torch.randn(2, 64))
    >>> 35 < report["0"]["weight"].sqnr < 60
    True
    """

    def __init__(self, counted: dict[str, dict[str, Counted]]) -> None:
        self._counted = counted

    def __getitem__(self, layer: str) -> dict[str, Tally]:
        """The tallies of a layer, by slot."""
        return {slot: counted.tally for slot, counted in self._counted[layer].items()}

    def __iter__(self) -> Iterator[str]:
        return iter(self._counted)

    def __len__(self) -> int:
        return len(self._counted)

    def __str__(self) -> str:
        rows = [(name, slot, tally) for name in self for slot, tally in self[name].items()]
        width = max([len("layer"), *(len(name) for name, _, _ in rows)])
        lines = [f"{'layer':<{width}}  slot    SQNR dB  saturated"]
        for name, slot, tally in sorted(rows, key=lambda row: row[2].sqnr):
            share = "unknown" if tally.saturated is None else f"{tally.saturated:.2%}"
            shown = f"{tally.sqnr:7.1f}" if tally.values else "not run"
            share = share if tally.values else ""
            lines.append(f"{name:<{width}}  {slot:<6}  {shown}  {share:>9}".rstrip())
        return "\n".join(lines)

    __repr__ = __str__
