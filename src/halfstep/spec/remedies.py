"""What a recipe does for accuracy beside choosing formats: remedies, as data.

>>> import halfstep as hs
>>> hs.recipes.static_int8().with_remedies(hs.remedies.Equalize()).remedies
(remedies.Equalize(limit=4.0),)
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, TypeAlias

from halfstep.errors import ArgumentError, ArgumentTypeError


class _Printed:
    """Prints as the Python that makes it, from ``import halfstep as hs``'s names."""

    def __repr__(self) -> str:
        given = (f"{name}={value!r}" for name, value in vars(self).items())
        return f"remedies.{type(self).__name__}({', '.join(given)})"


def _check_number(name: str, value: object, allowed: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"{name}={value!r} is no number: give {allowed}")


@dataclass(frozen=True, repr=False)
class Equalize(_Printed):
    """Cross-layer equalization: neighbouring layers share their range, channel by channel.

        W1' = W1 / s    b1' = b1 / s    W2' = W2 * s    s_i = sqrt(r1_i / r2_i)

    r1_i, r2_i are the largest magnitudes of channel i as an output of the first layer and as an
    input of the second. The float function stays as it is. Needs no data.

    limit: behind a clamp such as ReLU6, whose bound becomes one for each channel, the scales stay
        within this factor of their mean, since bounds far apart leave most channels few of the
        codes that they share; None for no such limit.

    Raises ``ArgumentError`` for a limit below 1.

    Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
    ICCV 2019, https://arxiv.org/abs/1906.04721, section 4.1, where ReLU6 is replaced by ReLU.

    >>> from halfstep.spec.remedies import Equalize
    >>> Equalize(limit=None)
    remedies.Equalize(limit=None)
    """

    needs_data: ClassVar[bool] = False
    limit: float | None = 4.0

    def __post_init__(self) -> None:
        if self.limit is None:
            return
        _check_number("limit", self.limit, "one from 1 on, such as 4.0, or None")
        if not self.limit >= 1:
            raise ArgumentError(f"limit={self.limit}: allowed is 1 or more, such as 4.0, or None")


@dataclass(frozen=True, repr=False)
class Smooth(_Printed):
    """SmoothQuant: outlier channels of activations move into the weights that read them.

        X' = X / s    W' = W * s    s_j = max |X_j|^alpha / max |W_j|^(1 - alpha)

    alpha: 0 leaves the activations as they are, 1 gives all of the difficulty to the weights.
    elsewhere: the alpha where no norm comes before a linear layer, and a multiplication of its own
        in float is the price; None leaves such layers as they are.

    The division becomes part of the LayerNorm or RMSNorm before; whoever else reads its value gets
    it multiplied back. The float function stays as it is. Looks at the calibration data before
    anything is decided.

    Raises ``ArgumentTypeError`` for what is no number, and ``ArgumentError`` for one outside
    [0, 1].

    Source: Xiao et al., "SmoothQuant: Accurate and Efficient Post-Training Quantization for Large
    Language Models", ICML 2023, https://arxiv.org/abs/2211.10438.

    >>> from halfstep.spec.remedies import Smooth
    >>> Smooth()
    remedies.Smooth(alpha=0.5, elsewhere=None)
    """

    needs_data: ClassVar[bool] = True
    alpha: float = 0.5
    elsewhere: float | None = None

    def __post_init__(self) -> None:
        given = {"alpha": self.alpha}
        if self.elsewhere is not None:
            given["elsewhere"] = self.elsewhere
        for name, value in given.items():
            _check_number(name, value, "one from 0 to 1, such as 0.5")
            if not 0 <= value <= 1:
                raise ArgumentError(f"{name}={value}: allowed is 0 to 1, such as 0.5")


@dataclass(frozen=True, repr=False)
class CorrectBias(_Printed):
    """Bias correction: the mean that quantizing adds to each channel is taken off its bias.

        b' = b - (E[y of the quantized layer] - E[y of the float layer])

    Layer by layer, from the first to the last, each on what the quantized layers before it bring.
    Changes the quantized model alone.

    Source: Nagel et al., "Data-Free Quantization Through Weight Equalization and Bias Correction",
    ICCV 2019, https://arxiv.org/abs/1906.04721, section 4.2; the empirical form of its appendix D.
    """

    needs_data: ClassVar[bool] = True


@dataclass(frozen=True, repr=False)
class ReestimateBatchNorm(_Printed):
    """Batch-norm re-estimation: the statistics of folded norms as quantized weights make them.

        y' = (y~ - E[y~]) / std[y~] * std[y] + E[y]

    y is what a layer with a batch norm in it brings in float, y~ what it brings with quantized
    weights: the norm's mean and variance move as quantizing moves them, and the factors go into the
    scales of the weights, which have to be one or more for each output channel. Layer by layer, as
    bias correction, which has nothing left to do there. Changes the quantized model alone.

    Source: Nagel et al., "A White Paper on Neural Network Quantization", 2021,
    https://arxiv.org/abs/2106.08295, section 4.2; Sun et al., "Hybrid 8-bit Floating Point Training
    and Inference for Deep Neural Networks", NeurIPS 2019.
    """

    needs_data: ClassVar[bool] = True


Remedy: TypeAlias = Equalize | Smooth | CorrectBias | ReestimateBatchNorm
_BY_NAME: dict[str, type[Remedy]] = {
    kind.__name__: kind for kind in (Equalize, Smooth, CorrectBias, ReestimateBatchNorm)
}


def checked(remedies: Any) -> tuple[Remedy, ...]:
    """The remedies of a recipe as a tuple.

    Raises ``ArgumentTypeError`` for what is no remedy, and ``ArgumentError`` for two of a kind.
    """
    some = (remedies,) if isinstance(remedies, Remedy) else tuple(remedies)
    for remedy in some:
        if not isinstance(remedy, Remedy):
            raise ArgumentTypeError(
                f"{remedy!r} is no remedy: give {', '.join(f'hs.remedies.{n}()' for n in _BY_NAME)}"
            )
    kinds = [type(remedy).__name__ for remedy in some]
    if twice := {kind for kind in kinds if kinds.count(kind) > 1}:
        raise ArgumentError(f"{', '.join(sorted(twice))} is there twice: a remedy works once")
    return some


def remedy_to_dict(remedy: Remedy) -> dict[str, Any]:
    """A remedy as plain data.

    >>> from halfstep.spec.remedies import Smooth, remedy_to_dict
    >>> remedy_to_dict(Smooth(0.7))
    {'name': 'Smooth', 'alpha': 0.7, 'elsewhere': None}
    """
    return {"name": type(remedy).__name__, **vars(remedy)}


def remedy_from_dict(plain: Any) -> Remedy:
    """The remedy that ``remedy_to_dict`` wrote. Raises ``ArgumentError`` for anything else."""
    given = dict(plain) if isinstance(plain, Mapping) else {}
    kind = _BY_NAME.get(str(given.pop("name", "")))
    if kind is None or not {field.name for field in fields(kind)}.issuperset(given):
        raise ArgumentError(
            f"{plain!r} is no remedy: allowed are {', '.join(_BY_NAME)} with their own fields"
        )
    return kind(**given)
