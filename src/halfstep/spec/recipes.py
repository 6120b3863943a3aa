"""The recipes that most people want.

>>> import halfstep as hs
>>> hs.recipes.static_int8().with_rules(hs.Rule("fc", keep_float=True))[0]
Rule('fc', keep_float=True)
"""

import torch

from halfstep.errors import ArgumentError
from halfstep.spec.dtypes import QDType, int8, uint8
from halfstep.spec.granularity import PerChannel, PerGroup, PerToken
from halfstep.spec.qspec import QSpec
from halfstep.spec.recipe import Recipe
from halfstep.spec.rule import Rule

_ATEN = torch.ops.aten
_CONV = ("conv1d", "conv2d", "conv3d")
_TRANSPOSED = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
_LOOKUPS = ("embedding", "embedding_bag")
_RECURRENT = ("lstm", "gru", "rnn")
_SIGNED_BITS = (2, 3, 4, 5, 6, 7, 8)

_ROWS = QSpec(int8, PerChannel(0), symmetric=True)
_COLUMNS = QSpec(int8, PerChannel(1), symmetric=True)
_BY_ROW = QSpec(uint8, PerToken())
_BY_SAMPLE = QSpec(uint8, PerChannel(0))


def static_int8() -> Recipe:
    """Weights and activations in 8 bits, their ranges found on data beforehand: the fastest form.

        weight: int8, symmetric, one scale per output channel    activations: uint8, one scale

    Recurrent layers find the scales of their rows while they run; embeddings keep int8 rows.

    >>> import halfstep as hs
    >>> from halfstep.spec.recipes import static_int8
    >>> static_int8().with_rules(hs.Rule("fc", keep_float=True))[0]
    Rule('fc', keep_float=True)
    """
    edge = QSpec(uint8)
    return Recipe(
        "static_int8",
        defaults=(
            *_recurrent(),
            *(Rule(op, weight=_ROWS) for op in _operators(_LOOKUPS)),
            *(Rule(op, weight=_COLUMNS, input=edge, output=edge) for op in _operators(_TRANSPOSED)),
            Rule("*", weight=_ROWS, input=edge, output=edge),
        ),
    )


def dynamic_int8() -> Recipe:
    """Weights in 8 bits; activations too, with scales that are found while the model runs: no data.

        weight: int8, symmetric, one scale per output channel    input: uint8, one scale per row

    A row is a token of a linear or recurrent layer, and a sample of a convolution, so that no
    result depends on its neighbours in the batch. Everything else computes in float.

    >>> from halfstep.spec.recipes import dynamic_int8
    >>> dynamic_int8()[-1]
    Rule(torch.ops.aten.linear, weight=QSpec(int8, PerChannel(axis=0), symmetric=True), \
input=QSpec(uint8, PerToken()))
    """
    return Recipe(
        "dynamic_int8",
        defaults=(
            *_recurrent(),
            *(Rule(op, weight=_ROWS) for op in _operators(_LOOKUPS)),
            *(Rule(op, weight=_COLUMNS, input=_BY_SAMPLE) for op in _operators(_TRANSPOSED)),
            *(Rule(op, weight=_ROWS, input=_BY_SAMPLE) for op in _operators(_CONV)),
            Rule(_ATEN.linear, weight=_ROWS, input=_BY_ROW),
        ),
    )


def weight_only(dtype: QDType | torch.dtype = int8, group_size: int | None = None) -> Recipe:
    """Weights as integers, arithmetic in float: the smallest form, and no data.

    dtype: a signed format of at most 8 bits.
    group_size: so many values along the input axis of a linear layer or an embedding share a scale,
        which 4 bits need (32, 64 or 128); by default all of an output channel.

    Convolutions and recurrent layers have one scale per output channel.

    Raises ``ArgumentError`` for another dtype, and a group size below 2.

    >>> import halfstep as hs
    >>> from halfstep.spec.recipes import weight_only
    >>> weight_only(hs.int4, group_size=32)[0]
    Rule(torch.ops.aten.linear, weight=QSpec(int4, PerGroup(axis=1, size=32), symmetric=True))
    """
    kind = QDType.of(dtype)
    if not kind.signed or kind.bits not in _SIGNED_BITS:
        raise ArgumentError(
            f"dtype={kind} is for no weights: use hs.int8, hs.int4 or another "
            "signed format of at most 8 bits"
        )
    if group_size is not None and group_size < 2:
        raise ArgumentError(f"group_size={group_size}: give 32, 64 or 128, or None")
    rows = QSpec(kind, PerChannel(0), symmetric=True)
    columns = rows.with_granularity(PerChannel(1))
    grouped = rows if group_size is None else rows.with_granularity(PerGroup(1, group_size))
    groups = "" if group_size is None else f", group_size={group_size}"
    return Recipe(
        f"weight_only({kind}{groups})",
        defaults=(
            *(Rule(op, weight=grouped) for op in _operators(("linear", *_LOOKUPS))),
            *(Rule(op, weight=columns) for op in _operators(_TRANSPOSED)),
            *(Rule(op, weight=rows) for op in _operators(_CONV)),
            *(Rule(op, weight=rows) for op in _layers()),
        ),
    )


def _recurrent() -> list[Rule]:
    return [Rule(op, weight=_ROWS, input=_BY_ROW) for op in _layers()]


def _operators(names: tuple[str, ...]) -> list[object]:
    return [getattr(_ATEN, name) for name in names]


def _layers() -> list[object]:
    """The recurrent operators of halfstep, which are there once its graph room is loaded."""
    return [getattr(torch.ops.halfstep, name) for name in _RECURRENT]
