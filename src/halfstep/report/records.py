"""What an explanation holds: plain data, which prints, is written to JSON and drawn."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from halfstep.numerics.metrics import sqnr_of
from halfstep.spec import Rule
from halfstep.spec.recipe import Recipe
from halfstep.spec.remedies import Remedy

# Where the error of a layer comes from, in the order in which the sources are switched on.
SOURCES = (
    "weight clipping",
    "weight rounding",
    "input clipping",
    "input rounding",
    "output clipping",
    "output rounding",
)


@dataclass(frozen=True, slots=True)
class Error:
    """How far values are from what they should be: sums over all elements of all batches.

    signal: sum of y^2. noise: sum of (y - y')^2. product: sum of y * y'. power: sum of y'^2.
    largest: max |y - y'|.
    """

    signal: float = 0.0
    noise: float = 0.0
    product: float = 0.0
    power: float = 0.0
    largest: float = 0.0
    elements: int = 0

    @property
    def sqnr(self) -> float:
        """10 log10(signal / noise), in dB; infinite where nothing differs."""
        return sqnr_of(self.signal, self.noise)

    @property
    def cosine(self) -> float:
        """product / sqrt(signal * power); 1 where both are zero."""
        norm = math.sqrt(self.signal * self.power)
        return self.product / norm if norm else float(self.signal == self.power)

    def __add__(self, other: "Error") -> "Error":
        return Error(
            self.signal + other.signal,
            self.noise + other.noise,
            self.product + other.product,
            self.power + other.power,
            max(self.largest, other.largest),
            self.elements + other.elements,
        )


@dataclass(frozen=True, slots=True)
class Split:
    """The local error of a layer by its sources: energies, sums over all elements.

        total = sum of the sources + cross

    The sources are switched on one after the other, in the order of ``SOURCES``; each one's error
    is what its switch changes, so that the errors add up to the error of the layer, and ``cross``
    is twice the sum of their products with each other.
    """

    sources: Mapping[str, float] = field(default_factory=dict)
    cross: float = 0.0
    total: float = 0.0

    @property
    def largest(self) -> str:
        """The source that brings most; empty where there is no error, or one that is not finite."""
        is_known = 0 < self.total < math.inf
        return max(self.sources, key=self.sources.__getitem__) if is_known else ""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of values in bins of one width between ``low`` and ``high``, both ends included."""

    low: float
    high: float
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Values:
    """One quantized tensor: its format, its values, and where they lie in it.

    name: the parameter's path, or the value's. shape: of the whole tensor. spec: as text.
    scale, zero_point: all of them, flat; for an edge one of each; none where rows find their own.
    low, high: the smallest and the largest value seen, in float.
    grid_low, grid_high: what the format reaches, (qmin - zero_point) * scale and for qmax; of many
        scales the outermost.
    saturated: the share of values outside of what their scale reaches.
    histogram: of the float values.
    channel_low, channel_high: ranges by channel, along ``axis`` (dimension 1 of images and of what
        convolutions take and make, else an activation's last; a weight's scale axis, else 0); empty
        where batches differ in the number of channels.
    dead: channels that were always zero. outliers: channels whose range is at least 8 times the
        median channel's.
    integers: the first codes of a weight, at most 64 x 64: rows along its first dimension, what
        lies in each flattened; empty for an activation.
    """

    name: str
    shape: tuple[int, ...]
    spec: str
    scale: tuple[float, ...]
    zero_point: tuple[int, ...]
    low: float
    high: float
    grid_low: float
    grid_high: float
    saturated: float
    histogram: Histogram
    axis: int
    channel_low: tuple[float, ...]
    channel_high: tuple[float, ...]
    dead: tuple[int, ...] = ()
    outliers: tuple[int, ...] = ()
    integers: tuple[tuple[int, ...], ...] = ()

    @property
    def scale_spread(self) -> float:
        """The largest scale over the smallest; 1 for a single one."""
        return max(self.scale) / min(self.scale) if self.scale else 1.0

    @property
    def channel_spread(self) -> float:
        """The range of the widest channel over the median channel's, channels of zeros left out."""
        spans = sorted(
            max(abs(low), abs(high))
            for low, high in zip(self.channel_low, self.channel_high, strict=True)
            if low or high
        )
        return spans[-1] / spans[len(spans) // 2] if spans else 1.0


@dataclass(frozen=True, slots=True)
class Advice:
    """What is wrong with one layer, and what helps.

    layer: its name. cause: one of a short list, such as "activation clipping".
    evidence: the numbers that show it. action: what to do, in words.
    rules: to put before the recipe's own. remedies: to add to it.
    harm: dB that the layer costs at the output or locally: what advice is sorted by.
    """

    layer: str
    cause: str
    evidence: str
    action: str
    rules: tuple[Rule, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    harm: float = 0.0

    @property
    def keeps_float(self) -> bool:
        """Whether it takes a layer out of the integers."""
        return any(rule.keep_float for rule in self.rules)

    def __str__(self) -> str:
        return f"{self.layer or '(the model)'}: {self.cause} ({self.evidence}). {self.action}"


@dataclass(frozen=True, slots=True)
class Layer:
    """One operator that runs as one step, with what is fused to it.

    value: the name of what it brings, by path; unique. layer: the module. op: such as "conv2d".
    runs: "int8", "dynamic int8", "int8 weights" or "float". why: as in the coverage.
    depth: its place in the order of execution. fused: the operators that run with it.
    operators: the values of all of them, by path, its own operator's first.
    reads: the values that it reads, by path.
    local: this layer alone quantized, on the inputs of the float model; None for layers that add
        no error of their own: those in float, and those that only move values.
    accumulated: the whole model quantized up to here.
    split: the local error by source.
    weight, bias_overflow: of its weight; and the channels whose bias is beyond int32 in an ONNX
        file, round(bias / (input scale * weight scale)).
    inputs, output: the codes that it takes and makes.
    before, after: bytes. float_ms, ms: measured, with what is fused; None where not timed.
    """

    value: str
    layer: str
    op: str
    runs: str
    why: str = ""
    depth: int = 0
    fused: tuple[str, ...] = ()
    operators: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    local: Error | None = None
    accumulated: Error | None = None
    split: Split | None = None
    weight: Values | None = None
    bias_overflow: tuple[int, ...] = ()
    inputs: tuple[Values, ...] = ()
    output: Values | None = None
    before: int = 0
    after: int = 0
    float_ms: float | None = None
    ms: float | None = None

    @property
    def own(self) -> str:
        """The value of its own operator; what is fused to it may be of another module."""
        return self.operators[0] if self.operators else self.value

    @property
    def verdict(self) -> str:
        """What a layer does to the model: it "hurts itself", "inherits", or is "fine".

        It is fine above 30 dB accumulated. Else it hurts itself where its own error is at least a
        quarter of all that has gathered, or is not finite, and inherits where it is less.
        """
        if self.accumulated is None or self.accumulated.sqnr >= 30:
            return "fine"
        own = 0.0 if self.local is None else self.local.noise
        gathered = self.accumulated.noise
        is_known = math.isfinite(own) and math.isfinite(gathered)
        hurts = own >= gathered / 4 if is_known else not math.isfinite(own)
        return "hurts itself" if hurts else "inherits"

    @property
    def is_slower(self) -> bool:
        """Whether it was measured to take longer than in float, by more than 0.01 ms."""
        if self.ms is None or self.float_ms is None or self.runs == "float":
            return False
        return self.ms > self.float_ms + 0.01


@dataclass(frozen=True, slots=True)
class Kept:
    """A list of layers which, kept in float, bring the output to a target.

    layers: their names. wide: those of them that have activations of 16 bits instead.
    target: in words, such as "SQNR of at least 25 dB".
    reached: the measured value of the target with them, verified by quantizing anew; is_met.
    bytes, ms: what keeping them costs; ms is None where not timed.
    before: what was measured without any. values: with the first of them, with the first two, and
        so on.
    """

    layers: tuple[str, ...]
    target: str
    reached: float
    is_met: bool
    bytes: int = 0
    ms: float | None = None
    before: float | None = None
    values: tuple[float, ...] = ()
    wide: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything that is known of what quantizing did to a model.

    model: its class. recipe: what it was made by. engine: what ran it.
    output: the error of what it returns. task: the user's own metric, float and quantized.
    layers: in the order of execution. advice: worst first.
    suggested_recipe: the recipe with the advice that was measured to help, and the output's
        ``suggested_sqnr`` with it; None where nothing is to be done.
    kept: the shortest list to keep in float, where a target was asked for.
    notes: what concerns no single layer. batches, samples: how much data it is measured on.
    before, after: bytes of the whole model. float_ms, ms: of one call, where timed.
    """

    model: str
    recipe: Recipe
    engine: str
    output: Error
    layers: tuple[Layer, ...]
    advice: tuple[Advice, ...] = ()
    suggested_recipe: Recipe | None = None
    suggested_sqnr: float | None = None
    kept: Kept | None = None
    task: tuple[float, float] | None = None
    notes: Sequence[str] = ()
    batches: int = 0
    samples: int = 0
    before: int = 0
    after: int = 0
    float_ms: float | None = None
    ms: float | None = None

    @property
    def is_equal(self) -> bool:
        """Whether float and quantized model are the same in every value that was compared."""
        measured = [layer.accumulated for layer in self.layers if layer.accumulated is not None]
        return all(error.noise == 0 for error in (self.output, *measured))
