"""Capabilities: what an engine runs in integers, as data."""

from dataclasses import dataclass

from halfstep.spec.dtypes import QDType


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What an engine declares, and what a program is converted for.

    engine: its name, for messages.
    integer_ops: the kinds of operators that it runs on integers ("linear", "conv", "add", ...).
    dtypes: the formats of activations that it takes.
    narrower: whether it also takes those with fewer codes in the same storage, as 4 bits in a byte.
    fuses_residual: whether a convolution or linear layer adds a residual before it requantizes;
        where not, the sum is a step of its own, on codes.
    fuses_activation: whether relu and clamp are part of the operator before them.
    per_row: whether rows get scales of their own while the model runs.
    """

    engine: str
    integer_ops: frozenset[str]
    dtypes: tuple[QDType, ...]
    narrower: bool = True
    fuses_residual: bool = True
    fuses_activation: bool = True
    per_row: bool = True

    def takes(self, dtype: QDType) -> bool:
        """Whether activations of a format run in integers.

        >>> import halfstep as hs
        >>> from halfstep.spec import Capabilities
        >>> some = Capabilities(engine="some", integer_ops=frozenset(), dtypes=(hs.uint8,))
        >>> some.takes(hs.uint4), some.takes(hs.int8)
        (True, False)
        """
        if dtype in self.dtypes:
            return True
        return self.narrower and any(dtype.storage == known.storage for known in self.dtypes)
