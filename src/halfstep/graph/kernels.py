"""Kernels that are chosen once for all programs with the same step over the same tensors."""

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor

from halfstep.graph.frozen import Bind, Bound, Lookup
from halfstep.graph.program import Step
from halfstep.tensor import QTensor


class Kernels:
    """What many versions of one program share: packed weights, and the choice between kernels.

    Tensors are the same where they are equal in each bit, so that a weight that was quantized anew
    is packed once all the same.

    >>> import torch
    >>> from halfstep.graph.kernels import Kernels
    >>> kernels, x = Kernels(), torch.ones(3)
    >>> kernels.canonical(x) is x, kernels.canonical(x.clone()) is x, kernels.canonical(x + 1) is x
    (True, True, False)
    """

    def __init__(self) -> None:
        self._pool: dict[Any, list[Tensor]] = defaultdict(list)
        self._bound: dict[Any, Bound | None] = {}

    def canonical(self, tensor: Tensor) -> Tensor:
        """The first tensor that was equal to this one; it is kept for good."""
        spec = tensor.spec if isinstance(tensor, QTensor) else None
        known = self._pool[spec, tensor.dtype, tensor.shape]
        for is_same in (_is_same_memory, _is_equal):  # the first is quick, and mostly does
            for other in known:
                if is_same(tensor, other):
                    return other
        known.append(tensor)
        return tensor

    def sharing(self, bind: Bind) -> Bind:
        """The same choice of kernels, made once for each step and the tensors that it reads."""

        def shared(step: Step, lookup: Lookup) -> Bound | None:
            key = self._key(bind, step, lookup)
            if key is None:
                return bind(step, lookup)
            if key not in self._bound:
                self._bound[key] = bind(step, lookup)
            return self._bound[key]

        return shared

    def _key(self, bind: Bind, step: Step, lookup: Lookup) -> Any:
        """What decides over the kernel; None where that cannot be said."""
        known = [lookup(value) for value in step.reads()]
        if not all(value is None or isinstance(value, Tensor) for value in known):
            return None
        places = [None if value is None else id(self.canonical(value)) for value in known]
        key = (bind, step, *places)
        try:
            hash(key)
        except TypeError:
            return None
        return key


def _stored(tensor: Tensor) -> tuple[Tensor, ...]:
    return tensor.stored() if isinstance(tensor, QTensor) else (tensor,)


def _is_same_memory(tensor: Tensor, other: Tensor) -> bool:
    return all(
        one.data_ptr() == two.data_ptr() and one.stride() == two.stride()
        for one, two in zip(_stored(tensor), _stored(other), strict=True)
    )


def _is_equal(tensor: Tensor, other: Tensor) -> bool:
    return all(
        one.stride() == two.stride() and torch.equal(one, two)
        for one, two in zip(_stored(tensor), _stored(other), strict=True)
    )
