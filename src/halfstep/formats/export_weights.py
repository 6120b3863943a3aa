"""Which tensors of an exported program its graph dequantizes, and with which scale."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from halfstep.errors import FileFormatError, HalfstepError
from halfstep.formats.assemble import assemble
from halfstep.formats.stored import StoredTensor
from halfstep.spec import Granularity, PerChannel, PerGroup, PerTensor, QDType, QSpec

_NAMESPACE: Final = "quantized_decomposed."


@dataclass(frozen=True)
class Call:
    """A node: the operator's name, and its arguments by name as the file has them."""

    target: str
    args: Mapping[str, Any]

    @property
    def quantizing(self) -> str:
        """The name of an operator that quantizes or dequantizes; empty for any other.

        >>> Call("quantized_decomposed.dequantize_per_tensor.default", {}).quantizing
        'dequantize_per_tensor'
        """
        if not self.target.startswith(_NAMESPACE):
            return ""
        return self.target.removeprefix(_NAMESPACE).partition(".")[0]

    def tensor(self, *names: str) -> str:
        """The graph's name of a tensor argument; empty where it is none."""
        for name in names:
            match self.args.get(name):
                case {"as_tensor": {"name": str(found)}}:
                    return found
        return ""

    def number(self, *names: str) -> float | None:
        """An argument that is a number; None where it is none."""
        for name in names:
            match self.args.get(name):
                case {"as_int": int() | float() as value} | {"as_float": int() | float() as value}:
                    return value
        return None

    def integer(self, name: str) -> int:
        """An argument that is an integer.

        Raises ``FileFormatError`` where it is none.
        """
        value = self.number(name)
        if not isinstance(value, int):
            raise FileFormatError(f"{self.target} has no {name}")
        return value


def quantized_weights(
    calls: Sequence[Call], names: Mapping[str, str], tensors: Mapping[str, StoredTensor]
) -> tuple[dict[str, StoredTensor], dict[str, str]]:
    """The tensors, those that are dequantized as quantized ones, and what cannot be read and why.

    Scales and zero points of weights are inside them and not listed again.
    """
    found = dict(tensors)
    unreadable: dict[str, str] = {}
    inner: set[str] = set()
    for call in calls:
        weight = names.get(call.tensor("input"), "")
        if not call.quantizing.startswith("dequantize") or weight not in tensors:
            continue
        try:
            found[weight], used = _quantized(tensors[weight], call, names, tensors)
            inner |= used
        except HalfstepError as error:
            unreadable[weight] = str(error)
            found.pop(weight, None)
    kept = {name: tensor for name, tensor in found.items() if name not in inner}
    return kept, unreadable


def _quantized(
    codes: StoredTensor, call: Call, names: Mapping[str, str], tensors: Mapping[str, StoredTensor]
) -> tuple[StoredTensor, set[str]]:
    spec = QSpec(_dtype(codes.dtype, call), _granularity(codes.shape, call))
    parts = [_parameter(call, kinds, names, tensors) for kinds in _PARAMETERS]
    used = {name for name, _ in parts if name}

    def load() -> Tensor:
        scale, zero_point = (each.load() for _, each in parts)
        if isinstance(spec.granularity, PerTensor):
            scale, zero_point = scale.reshape(()), zero_point.reshape(())
        return assemble(
            codes.load(), spec, (scale.float(), zero_point.to(torch.int32)), dtype=torch.float32
        )

    nbytes = codes.nbytes + sum(each.nbytes for name, each in parts if name)
    return StoredTensor(codes.shape, torch.float32, spec, nbytes, load), used


_PARAMETERS: Final = (("scale", "scales"), ("zero_point", "zero_points"))


def _parameter(
    call: Call,
    kinds: tuple[str, ...],
    names: Mapping[str, str],
    tensors: Mapping[str, StoredTensor],
) -> tuple[str, StoredTensor]:
    """A scale or zero point: its name where it is a tensor of the file, else a number."""
    name = names.get(call.tensor(*kinds), "")
    if name in tensors:
        return name, tensors[name]
    number = call.number(*kinds)
    if number is None and kinds[0] == "zero_point" and not call.tensor(*kinds):
        number = 0
    if number is None:
        raise FileFormatError(f"its {kinds[0]} is computed by the program")
    value = torch.tensor(number, dtype=torch.float64)
    return "", StoredTensor((), value.dtype, None, 0, lambda: value)


def _dtype(storage: torch.dtype, call: Call) -> QDType:
    full = QDType.of(storage)
    low, high = call.integer("quant_min"), call.integer("quant_max")
    return full if (low, high) == (full.qmin, full.qmax) else full.within(low, high)


def _granularity(shape: tuple[int, ...], call: Call) -> Granularity:
    match call.quantizing:
        case "dequantize_per_tensor":
            return PerTensor()
        case "dequantize_per_channel":
            return PerChannel(call.integer("axis") % max(len(shape), 1))
        case "dequantize_per_channel_group":
            return PerGroup(len(shape) - 1, call.integer("group_size"))
    raise FileFormatError(f"{call.quantizing} is not read")
