"""Coverage: how each operator of a quantized model runs, and why."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from html import escape
from itertools import groupby
from typing import Any

from halfstep.errors import ArgumentError
from halfstep.graph.kinds import is_move
from halfstep.report.columns import size, table

_HEAD = ("layer", "op", "runs as", "before", "after", "why")
_TIMED = ("layer", "op", "runs as", "before", "after", "float ms", "ms", "why")
# Time is measured; a difference below this is not told from none.
_NOTICED_MS = 0.01
FLOAT = "float"
FOLDED = "folded"
# The operator of a module that runs its own code.
PYTHON = "(Python)"


@dataclass(frozen=True, slots=True)
class Row:
    """One operator of the model.

    layer: the module that it stems from.
    op: its name, such as "conv2d".
    runs: "int8", "dynamic int8", "int8 weights", "float", or "folded" into another.
    why: what a reader should know of it; empty where the recipe asked for just this.
    before, after: bytes of the parameters that it is the first to read.
    value: what it brings, by path and name in its program.
    float_ms, ms: the time that it takes in float and as it is, where that was measured; what is
        fused to it included.
    """

    layer: str
    op: str
    runs: str
    why: str = ""
    before: int = 0
    after: int = 0
    value: str = ""
    float_ms: float | None = None
    ms: float | None = None

    @property
    def is_slower(self) -> bool:
        """Whether it was measured to take longer than in float."""
        if self.ms is None or self.float_ms is None or self.runs == FLOAT:
            return False
        return self.ms > self.float_ms + _NOTICED_MS


@dataclass(frozen=True)
class Coverage:
    """Every operator of a quantized model: a sequence of rows, which prints as a table.

    notes: what concerns no single operator.

    >>> from halfstep.flows.coverage import Coverage, Row
    >>> print(Coverage((Row("fc", "linear", "int8", before=400, after=140),)))
    layer  op      runs as  before  after  why
    fc     linear  int8      400 B  140 B
    1 of 1 operators in integers (1 int8); their parameters: 400 B before, 140 B after
    """

    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> Row:
        return self.rows[place]

    def of(self, layer: str) -> list[Row]:
        """The operators of a layer and of the layers inside it."""
        inside = (row.layer == layer or row.layer.startswith(f"{layer}.") for row in self.rows)
        return [row for row, found in zip(self.rows, inside, strict=True) if found]

    @property
    def totals(self) -> str:
        """How many operators run in integers, and the bytes of all parameters in the table."""
        counts = Counter(row.runs for row in self.rows if row.runs not in (FLOAT, FOLDED))
        left = sum(row.runs == FLOAT for row in self.rows)
        kinds = ", ".join(f"{count} {runs}" for runs, count in counts.most_common())
        return (
            f"{counts.total()} of {counts.total() + left} operators in integers"
            f"{f' ({kinds})' if kinds else ''}; their parameters: "
            f"{size(sum(row.before for row in self.rows))} before, "
            f"{size(sum(row.after for row in self.rows))} after"
        )

    def with_times(self, times: Mapping[str, tuple[float, float]]) -> "Coverage":
        """The table with milliseconds in float and as it runs, by ``Row.value``."""
        rows = [
            replace(row, float_ms=times[row.value][0], ms=times[row.value][1])
            if row.value in times
            else row
            for row in self.rows
        ]
        return replace(self, rows=tuple(rows))

    @property
    def is_timed(self) -> bool:
        """Whether it shows times."""
        return any(row.ms is not None for row in self.rows)

    def _table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The head and the cells."""
        head = _TIMED if self.is_timed else _HEAD
        return head, [_cells(row, timed=self.is_timed) for row in _gathered(self.rows)]

    def __str__(self) -> str:
        head, rows = self._table()
        right = range(3, len(head) - 1)
        return "\n".join([table(head, rows, right=right), *self.notes, self.totals])

    def _repr_html_(self) -> str:
        names, rows = self._table()
        head = "".join(f"<th>{escape(name)}</th>" for name in names)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in (*self.notes, self.totals))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{notes}"

    def to_dict(self) -> dict[str, Any]:
        """The table as plain data, for JSON and for files."""
        return {"rows": [asdict(row) for row in self.rows], "notes": list(self.notes)}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> "Coverage":
        """The coverage that ``to_dict`` wrote. Raises ``ArgumentError`` for anything else."""
        try:
            return cls(tuple(Row(**row) for row in plain["rows"]), tuple(plain["notes"]))
        except (KeyError, TypeError) as error:
            raise ArgumentError(f"this is no coverage: {error}") from None


def _gathered(rows: Iterable[Row]) -> Iterator[Row]:
    """The rows to show: neighbouring float steps of a layer that only move values are one."""
    for (layer, are_moves), group in groupby(rows, lambda row: (row.layer, _only_moves(row))):
        some = list(group)
        if not are_moves or len(some) == 1:
            yield from some
            continue
        names = ", ".join(dict.fromkeys(row.op for row in some))
        both = [sum(times) for times in zip(*map(_times, some), strict=True)]
        float_ms, ms = both if some[0].ms is not None else (None, None)
        yield Row(layer, f"{len(some)} moves", FLOAT, names, float_ms=float_ms, ms=ms)


def _times(row: Row) -> tuple[float, float]:
    return row.float_ms or 0.0, row.ms or 0.0


def _only_moves(row: Row) -> bool:
    return row.runs == FLOAT and not row.before and is_move(row.op)


def _cells(row: Row, *, timed: bool) -> tuple[str, ...]:
    shown = [size(count) if count else "" for count in (row.before, row.after)]
    if timed:
        shown += ["" if ms is None else f"{ms:.3f}" for ms in (row.float_ms, row.ms)]
    why = "; ".join(filter(None, ["slower than in float" * row.is_slower, row.why]))
    return (row.layer or "(the model)", row.op, row.runs, *shown, why)
