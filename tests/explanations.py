"""Explanations with made-up numbers, for tests of how one looks."""

import math
from dataclasses import replace
from random import Random

import halfstep as hs
from halfstep.report.explanation import Explanation
from halfstep.report.records import (
    SOURCES,
    Advice,
    Error,
    Histogram,
    Kept,
    Layer,
    Split,
    Values,
)

RECIPE = hs.recipes.static_int8()
BAD = 3


def seeded() -> Random:
    """The same numbers in every run."""
    return Random(0)  # noqa: S311  (nothing secret)


def error(sqnr: float, signal: float = 1000.0) -> Error:
    """An error of so many decibels."""
    noise = signal / 10 ** (sqnr / 10)
    return Error(signal, noise, signal, signal + noise, 0.37, 4096)


def split(total: float, chance: Random) -> Split:
    """Sources that add up to the total, with cross terms."""
    parts = {source: total * chance.random() / 3 for source in SOURCES}
    parts["weight clipping"] = 0.0
    return Split(parts, cross=total - sum(parts.values()), total=total)


def edge(name: str, channels: int, chance: Random) -> Values:
    """An activation in uint8 with one outlier channel."""
    low = tuple(-chance.random() for _ in range(channels))
    high = tuple(chance.random() * (9 if c == 5 else 1) for c in range(channels))
    counts = tuple(int(9000 * math.exp(-((b - 40) ** 2) / 90)) + b % 2 for b in range(128))
    return Values(
        name=name,
        shape=(4, channels, 14, 14),
        spec="QSpec(uint8)",
        scale=(0.0173,),
        zero_point=(60,),
        low=-1.3,
        high=5.9,
        grid_low=-60 * 0.0173,
        grid_high=195 * 0.0173,
        saturated=0.00123,
        histogram=Histogram(-1.3, 5.9, counts),
        axis=1,
        channel_low=low,
        channel_high=high,
        outliers=(5,) if channels % 8 else (),
        dead=(7,) if channels % 3 else (),
    )


def weight(name: str, channels: int, inside: int, chance: Random) -> Values:
    """A convolution's weight in int8, a scale for each channel."""
    scale = tuple(0.001 + 0.004 * chance.random() for _ in range(channels))
    rows, columns = min(channels, 64), min(inside * 9, 64)
    codes = tuple(
        tuple(max(-127, min(127, round(chance.gauss(0, 40)))) for _ in range(columns))
        for _ in range(rows)
    )
    counts = tuple(int(3000 * math.exp(-((b - 64) ** 2) / 200)) for b in range(128))
    return Values(
        name=f"{name}.weight",
        shape=(channels, inside, 3, 3),
        spec="QSpec(int8, PerChannel(axis=0), symmetric=True)",
        scale=scale,
        zero_point=(0,) * channels,
        low=-0.5,
        high=0.5,
        grid_low=-0.63,
        grid_high=0.62,
        saturated=0.0,
        histogram=Histogram(-0.5, 0.5, counts),
        axis=0,
        channel_low=tuple(-127 * value for value in scale),
        channel_high=tuple(126 * value for value in scale),
        integers=codes,
    )


def convolution(depth: int, chance: Random) -> Layer:
    """A convolution in integers; the one at ``BAD`` is bad."""
    name = f"blocks.{depth // 3}.inverted_residual_with_a_long_name.conv{depth % 3}"
    alone = 12.0 if depth == BAD else 36 + 8 * chance.random()
    so_far = 40 - depth / 3 if depth < BAD else 12 + 10 * chance.random()
    local = error(alone)
    channels = 16 + 4 * depth
    return Layer(
        value=f"{name}.conv2d",
        layer=name,
        op="conv2d",
        runs="int8",
        depth=depth,
        fused=(f"{name}.relu",),
        reads=(f"value_{depth - 1}",),
        local=local,
        accumulated=error(so_far),
        split=split(local.noise, chance),
        weight=weight(name, channels, 8, chance),
        inputs=(edge(f"value_{depth - 1}", 16 + 4 * (depth - 1), chance),),
        output=edge(f"value_{depth}", channels, chance),
        before=channels * 72 * 4,
        after=channels * 72 + channels * 4,
        float_ms=0.2 + chance.random(),
        ms=0.1 + chance.random(),
    )


def float_layer(depth: int) -> Layer:
    """A layer that stayed float, with its reason."""
    return Layer(
        value=f"softmax_{depth}",
        layer="",
        op="softmax",
        runs="float",
        why="no integer kernel: softmax needs exponentials in float",
        depth=depth,
        accumulated=error(18.0),
        before=0,
        after=0,
    )


def advice(layer: str, cause: str, harm: float) -> Advice:
    """A piece of advice with a rule."""
    return Advice(
        layer,
        cause,
        evidence="12.0 dB alone; 41 % of its error from input clipping; 0.12 % saturated",
        action="Find its range by mean squared error, which ignores the few largest values.",
        rules=(hs.Rule(layer or "*", keep_float=True),),
        harm=harm,
    )


def network(count: int = 80) -> Explanation:
    """A whole network: a bad layer, float layers, advice, a suggested recipe, times."""
    chance = seeded()
    layers = tuple(
        float_layer(depth) if depth % 20 == 19 else convolution(depth, chance)
        for depth in range(count)
    )
    bad = layers[min(BAD, count - 1)].layer
    pieces = [advice(bad, "activation clipping", 9.0), advice("", "too little data", 1.0)]
    pieces += [advice(layer.layer, "outlier channels", 0.5) for layer in layers[4:8]]
    return Explanation(
        model="EfficientNetLite0",
        recipe=RECIPE,
        engine="torch",
        output=replace(error(18.8), product=993.0),
        layers=layers,
        advice=tuple(pieces),
        suggested_recipe=RECIPE.with_rules(hs.Rule(bad, keep_float=True)),
        suggested_sqnr=27.1,
        kept=Kept((bad,), "SQNR of at least 25 dB", 27.1, is_met=True, bytes=120_000, ms=0.4),
        task=(0.9, 0.85),
        notes=("a shared weight is counted once",),
        batches=4,
        samples=16,
        before=18_650_000,
        after=4_950_000,
        float_ms=41.3,
        ms=17.6,
    )


def hostile() -> Explanation:
    """Names that try to become code, in every place where a name shows."""
    name = '</script><img src=x onerror="window.broken=1">[bold]{{ 7 * 7 }}'
    whole = network(8)
    bad = replace(whole.layers[BAD], value=name, layer=name, op=name, why=name, fused=(name,))
    layers = (*whole.layers[:BAD], bad, *whole.layers[BAD + 1 :])
    pieces = (replace(advice(name, name, 1.0), evidence=name, action=name),)
    recipe = RECIPE.with_rules(hs.Rule(name, keep_float=True))
    return replace(
        whole, model=name, layers=layers, advice=pieces, suggested_recipe=recipe, notes=(name,)
    )


def not_finite() -> Explanation:
    """NaN and infinities wherever a float may be."""
    lost = Error(math.nan, math.nan, math.nan, math.nan, math.inf, 10)
    layer = convolution(BAD, seeded())
    assert layer.weight is not None
    assert layer.output is not None
    broken = replace(
        layer.output,
        low=-math.inf,
        high=math.nan,
        saturated=math.nan,
        histogram=Histogram(math.nan, math.nan, ()),
        channel_low=(math.nan,) * 76,
        channel_high=(math.inf,) * 76,
    )
    bad = replace(
        layer,
        local=lost,
        accumulated=replace(lost, signal=1.0, noise=math.inf),
        split=Split(dict.fromkeys(SOURCES, math.nan), math.nan, math.nan),
        output=broken,
    )
    return replace(network(2), output=lost, layers=(bad, float_layer(1)), task=(0.9, math.nan))


def empty() -> Explanation:
    """A model without layers, on no data."""
    return Explanation("Identity", RECIPE, "torch", Error(), ())


def dynamic() -> Explanation:
    """A layer without edges, advice and times."""
    layer = convolution(0, seeded())
    plain = replace(
        layer, runs="dynamic int8", inputs=(), output=None, split=None, ms=None, float_ms=None
    )
    return Explanation(
        "Linear", hs.recipes.dynamic_int8(), "torch", error(41.0), (plain,), batches=1, samples=2
    )


def identical() -> Explanation:
    """A pair without any difference."""
    same = Error(5.0, 0.0, 5.0, 5.0, 0.0, 10)
    layers = tuple(
        replace(layer, local=same, accumulated=same, split=Split(dict.fromkeys(SOURCES, 0.0)))
        for layer in network(3).layers
    )
    return Explanation("Net", RECIPE, "torch", same, layers, batches=1, samples=4)
