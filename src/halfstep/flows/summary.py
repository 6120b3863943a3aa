"""Summary: what quantizing a model came to, in a few lines."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from halfstep.errors import ArgumentError
from halfstep.report.columns import size
from halfstep.report.records import Kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What quantizing a model came to.

    recipe: its name; why: who chose it.
    bytes_before, bytes_after: of all parameters and buffers, shared ones counted once.
    batches: how many the ranges were found on.
    sqnr: of all float outputs against the float model, in dB; None where nothing was compared.
    compared: on how many batches.
    equality: what comparing each engine with the reference said.
    kept: the layers that a target kept in float; None where there was no target.

    >>> from halfstep.flows.summary import Summary
    >>> print(Summary(recipe="dynamic_int8", bytes_before=4000, bytes_after=1040))
    recipe: dynamic_int8
    size: 4.0 kB before, 1.0 kB after (0.26)
    output SQNR: not measured, since there was no data
    """

    recipe: str
    bytes_before: int
    bytes_after: int
    why: str = ""
    batches: int = 0
    sqnr: float | None = None
    compared: int = 0
    equality: Mapping[str, str] = field(default_factory=dict)
    kept: Kept | None = None

    def __str__(self) -> str:
        why = f" ({self.why})" if self.why else ""
        share = self.bytes_after / max(self.bytes_before, 1)
        before, after = size(self.bytes_before), size(self.bytes_after)
        lines = [
            f"recipe: {self.recipe}{why}",
            f"size: {before} before, {after} after ({share:.2f})",
        ]
        lines += [f"calibrated on: {_batches(self.batches)}"] * bool(self.batches)
        lines.append(f"output SQNR: {self._sqnr()}")
        lines += [] if self.kept is None else _kept(self.kept)
        lines += [f"engine {name}: {found}" for name, found in self.equality.items()]
        return "\n".join(lines)

    def _sqnr(self) -> str:
        if self.sqnr is not None:
            return f"{self.sqnr:.1f} dB against the float model on {_batches(self.compared)}"
        if not self.batches:
            return "not measured, since there was no data"
        return "not measured, since no float outputs were compared with those of the model"

    def to_dict(self) -> dict[str, Any]:
        """The summary as plain data, for JSON and for files."""
        return {**asdict(self), "equality": dict(self.equality)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Summary":
        """The summary that ``to_dict`` wrote. Raises ``ArgumentError`` for anything else."""
        try:
            kept = plain.get("kept")
            return cls(**{**plain, "kept": None if kept is None else _kept_from(kept)})
        except (AttributeError, TypeError) as error:
            raise ArgumentError(f"this is no summary: {error}") from None


def _kept(kept: Kept) -> Iterator[str]:
    """Which layers stay in float for a target, what they bring and what they cost."""
    target = f"target: {kept.target}"
    if not kept.is_met:
        yield f"{target}, which is not reached; no layer is kept for it"
        return
    if not kept.layers:
        yield f"{target}, reached without keeping a layer in float"
        return
    count = f"{len(kept.layers)} layer{'s' * (len(kept.layers) != 1)}"
    yield f"{target}, reached with {count} in float, for {size(kept.bytes)} more:"
    yield f"  none: {kept.before:.4g}"
    for layer, value in zip(kept.layers, kept.values, strict=True):
        bits = " (16 bits)" * (layer in kept.wide)
        yield f"  + {layer or '(the model)'}: {value:.4g}{bits}"


def _kept_from(plain: Mapping[str, Any]) -> Kept:
    tuples = {name: tuple(plain[name]) for name in ("layers", "values", "wide") if name in plain}
    return Kept(**{**plain, **tuples})


def _batches(count: int) -> str:
    return f"{count} batch{'es' * (count != 1)}"
