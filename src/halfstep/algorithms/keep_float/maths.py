"""The shortest list of layers to keep in float, by measuring.

With L the layers, m(S) what is measured with the layers in S kept in float, and t the target, the
list is a small S with m(S) >= t. It is found in three phases, each decided by m alone:

1. the layers in the order of their gain, g(l) = m({l}) - m({}); of that order the shortest prefix
   that meets the target, by doubling its length and then halving the interval;
2. from it, parts are left out while the target still holds: halves, quarters, at last single ones,
   until m(S - {l}) < t for each l in S. S is then 1-minimal, whatever m does otherwise
   (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE Transactions on
   Software Engineering 28(2), 2002, https://doi.org/10.1109/32.988498, leave parts out this way);
3. two of its members are exchanged for one layer outside of it, where the target still holds.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Measure = Callable[[tuple[str, ...]], float]
# Layers outside of the list that are tried in the place of two of its members.
_EXCHANGED = 4


@dataclass(frozen=True)
class Found:
    """What the search came to.

    members: the layers to keep in float, the greatest gain first; none where the target cannot be
        met.
    values: what was measured with the first of them, with the first two, and so on.
    before: what was measured without any. reached: with all members; where the target cannot be
        met, the most that was measured.
    is_met: whether the target is. is_minimal: whether it is known that no member can be left out.
    measured: how often.
    """

    members: tuple[str, ...]
    values: tuple[float, ...]
    before: float
    reached: float
    is_met: bool
    is_minimal: bool = True
    measured: int = 0


def ranked(gains: Mapping[str, float], costs: Mapping[str, float] | None = None) -> list[str]:
    """The layers, the greatest gain first; of equal gains the cheapest first; no number comes last.

    >>> from halfstep.algorithms.keep_float.maths import ranked
    >>> ranked({"a": 0.1, "b": 3.0, "c": 0.1}, {"a": 9, "b": 9, "c": 1})
    ['b', 'c', 'a']
    """
    known = costs or {}
    return sorted(gains, key=lambda name: (-_number(gains[name]), known.get(name, 0.0)))


def shortest(layers: Sequence[str], measure: Measure, target: float, *, most: int = 100) -> Found:
    """The shortest list found of ``layers`` with ``measure(list) >= target``.

    layers: in the order of their gain. measure: higher is better; NaN is below every target.
    most: so many different lists are measured; when they are used up, what is known to meet the
        target is returned as it is then.

    >>> from halfstep.algorithms.keep_float.maths import shortest
    >>> loss = {"a": 8.0, "b": 4.0, "c": 2.0, "d": 1.0}
    >>> found = shortest("abcd", lambda kept: 20 - sum(loss[n] for n in loss if n not in kept), 14)
    >>> found.members, found.values, found.before, found.reached
    (('a', 'b'), (13.0, 17.0), 5.0, 17.0)
    """
    known = _Measured(measure, target, most)
    before = known.value(())
    everything = tuple(layers)
    if before >= target:
        return Found((), (), before, before, is_met=True, measured=known.count)
    if not known.holds(everything):
        best = max(known.values.values())
        return Found((), (), before, best, is_met=False, measured=known.count)
    members = _prefix(everything, known)
    is_minimal = True
    try:
        members = _reduced(members, known)
        while (fewer := _exchanged(members, everything, known)) is not None:
            members = _reduced(fewer, known)
    except _UsedUpError:
        members, is_minimal = known.least or members, False
    known.most += len(members)  # to say what each brings
    values = tuple(known.value(members[:count]) for count in range(1, len(members) + 1))
    return Found(members, values, before, values[-1], True, is_minimal, known.count)


def softened(members: Sequence[str], measure: Measure, target: float) -> tuple[str, ...]:
    """The members of a list for which something softer than float serves as well.

    measure: what is measured with some of the members softer and the others in float. They are
        tried one by one, those of the least gain first, and stay softer while the target holds.

    >>> from halfstep.algorithms.keep_float.maths import softened
    >>> softened("abc", lambda softer: 20 - 5 * len(softer), 10)
    ('c', 'b')
    """
    found: tuple[str, ...] = ()
    for name in reversed(members):
        if _number(measure((*found, name))) >= target:
            found = (*found, name)
    return found


class _UsedUpError(Exception):
    """No more lists may be measured."""


@dataclass
class _Measured:
    """What was measured, by list; the shortest list so far that meets the target."""

    measure: Measure
    target: float
    most: int
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    least: tuple[str, ...] | None = None

    @property
    def count(self) -> int:
        return len(self.values)

    def value(self, members: tuple[str, ...]) -> float:
        """What is measured with these, once. Raises ``_UsedUpError``."""
        if members not in self.values:
            if self.count >= self.most:
                raise _UsedUpError
            self.values[members] = _number(self.measure(members))
            is_shorter = self.least is None or len(members) < len(self.least)
            if self.values[members] >= self.target and is_shorter:
                self.least = members
        return self.values[members]

    def holds(self, members: tuple[str, ...]) -> bool:
        """Whether the target is met with these."""
        return self.value(members) >= self.target


def _number(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def _prefix(layers: tuple[str, ...], known: _Measured) -> tuple[str, ...]:
    """A prefix that meets the target, where the one that is shorter by one was measured not to."""
    low, high = 0, 1
    while high < len(layers) and not known.holds(layers[:high]):
        low, high = high, 2 * high
    high = min(high, len(layers))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if known.holds(layers[:middle]) else (middle, high)
    return layers[:high]


def _reduced(members: tuple[str, ...], known: _Measured) -> tuple[str, ...]:
    """The members of which none can be left out; those of the least gain are tried first."""
    size = max(len(members) // 2, 1)
    while True:
        fewer = next((one for one in _without(members, size) if known.holds(one)), None)
        if fewer is not None:
            members = fewer
            size = max(min(size, len(members) // 2), 1)
        elif size == 1:
            return members
        else:
            size //= 2


def _without(members: tuple[str, ...], size: int) -> Iterator[tuple[str, ...]]:
    """The members without each part of a size, from the end; at least one is left."""
    for stop in range(len(members), 0, -size):
        rest = members[: max(stop - size, 0)] + members[stop:]
        if rest:
            yield rest


def _exchanged(
    members: tuple[str, ...], layers: tuple[str, ...], known: _Measured
) -> tuple[str, ...] | None:
    """A list that is shorter by one: two members of the least gain go, and another layer comes."""
    if len(members) < 2:
        return None
    others = [name for name in layers if name not in members][:_EXCHANGED]
    rank = {name: place for place, name in enumerate(layers)}
    for other in others:
        swapped = tuple(sorted((*members[:-2], other), key=rank.__getitem__))
        if known.holds(swapped):
            return swapped
    return None
