"""The calibration data: run through a model once, and kept as far as there is room."""

import itertools
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from halfstep.errors import ArgumentError, HalfstepError
from halfstep.flows.batches import Batches, Forward, as_batches, inference, run
from halfstep.flows.compare import floats
from halfstep.flows.progress import steps

# Batches and outputs beyond this are not kept, and so not compared.
MOST_BYTES = 1 << 30
# Samples of a batch that a model is traced with, and those on which its program is proved.
_TRACED, _PROVED = 2, 3


@dataclass
class Data:
    """Batches, and how a model is run on one.

    Raises ``ArgumentError`` where there is no batch, and ``ArgumentTypeError`` for what holds none.
    """

    batches: Batches
    forward: Forward | None = None
    max_batches: int | None = None
    progress: bool | None = None
    title: str = "calibrating"
    count: int = 0
    kept: list[tuple[Any, list[Tensor]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.is_function = callable(self.batches) and not isinstance(self.batches, Iterable)
        if not self.is_function:
            self._rest = iter(as_batches(self.batches, self.max_batches))
            self._first = list(itertools.islice(self._rest, 1))
            if not self._first:
                raise ArgumentError("batches holds no batch: give at least one")
        elif self.forward is not None or self.max_batches is not None:
            raise ArgumentError(
                "batches is a function that runs the model itself: leave out max_batches= and "
                "forward="
            )

    def run_first(self, model: nn.Module) -> Any:
        """Run the model on the first batch."""
        return self.run(model, self.first)

    def run_few(self, model: nn.Module) -> Any:
        """Run the model on two samples of the first batch, and on three."""
        self.run(model, self.samples(_TRACED))
        some = self.samples(_PROVED)
        return self.run_first(model) if some is None else self.run(model, some)

    @property
    def first(self) -> Any:
        """The first batch."""
        return None if self.is_function else self._first[0]

    def samples(self, count: int) -> Any:
        """The first samples of the first batch; None where it has no more, or none that are seen.

        The first dimension of all tensors is taken for that of the samples.
        """
        sizes = {one.shape[0] if one.ndim else 0 for one in _tensors(self.first)}
        if len(sizes) != 1 or max(sizes) <= count:
            return None
        return tree_map_only(Tensor, lambda one: one[:count], self.first)

    def run(self, model: nn.Module, batch: Any) -> Any:
        """Run the model on a batch, in eval mode and without gradients.

        On a copy of it: a model may change its input, which is the user's.
        """
        with inference(model):
            if self.is_function:
                return self.batches(model)
            return run(model, copied(batch), self.forward)

    def run_ahead(self, model: nn.Module) -> None:
        """Run the model on as many batches as there is room for; ``run_all`` sees them again."""
        if self.is_function:
            self.run(model, None)
            return
        room = MOST_BYTES
        for batch in steps(self._ahead(), "looking ahead", progress=self.progress):
            self.run(model, batch)
            room -= sum(one.nbytes for one in _tensors(batch))
            if room <= 0:
                break

    def _ahead(self) -> Iterator[Any]:
        """The batches, each of which is kept when it has been read."""
        yield from self._first
        for batch in self._rest:
            self._first.append(batch)
            yield batch

    def run_all(self, model: nn.Module) -> None:
        """Run the model on all batches, and keep them with what it returns."""
        room = MOST_BYTES
        for batch in steps(self._every(), self.title, progress=self.progress):
            room -= sum(one.nbytes for one in _tensors(batch))
            own = copied(batch) if room > 0 else None
            # A model may change its input, which is the user's.
            expected = floats(self.run(model, batch))
            self.count += 1
            room -= sum(one.nbytes for one in expected)
            if room > 0:
                self.kept.append((own, expected))

    def run_kept(
        self, model: nn.Module, *, title: str = "comparing", samples: int | None = None
    ) -> Iterator[tuple[list[Tensor], list[Tensor]]]:
        """What was returned before and what the model returns, for every batch that was kept.

        samples: take no more batches than hold as many, their first dimension taken for that of
            the samples.
        """
        kept = self.kept if samples is None else self._few(samples)
        for batch, expected in steps(kept, title, progress=self.progress):
            yield expected, floats(self.run(model, batch))

    def _few(self, samples: int) -> list[tuple[Any, list[Tensor]]]:
        """The first batches that were kept."""
        found: list[tuple[Any, list[Tensor]]] = []
        for batch, expected in self.kept:
            if samples > 0:
                found.append((batch, expected))
            samples -= samples_in(batch)
        return found

    def run_sample(self, model: nn.Module) -> list[Tensor]:
        """What the model returns for one sample: the first of the first batch, where it has one."""
        sample = self.samples(1)
        if sample is not None:
            with suppress(HalfstepError):  # the first dimension may be none of a batch
                return floats(self.run(model, sample))
        return floats(self.run(model, self.first))

    def _every(self) -> Iterable[Any]:
        return [None] if self.is_function else itertools.chain(self._first, self._rest)


def _tensors(batch: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor)]


def samples_in(batch: Any) -> int:
    """How many samples a batch holds: the first dimension of its tensors."""
    return max((one.shape[0] for one in _tensors(batch) if one.ndim), default=1)


def copied(batch: Any) -> Any:
    """The batch with tensors of its own, since a model may change what it is given."""
    return tree_map_only(Tensor, Tensor.clone, batch)
