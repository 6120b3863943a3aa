"""Coverage: how each operator of a quantized model runs, and why."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

from halfstep.errors import ArgumentError
from halfstep.flows.columns import size, table

_HEAD = ("layer", "op", "runs as", "before", "after", "why")
FLOAT = "float"
FOLDED = "folded"


@dataclass(frozen=True, slots=True)
class Row:
    """One operator of the model.

    layer: the module that it stems from.
    op: its name, such as "conv2d".
    runs: "int8", "dynamic int8", "int8 weights", "float", or "folded" into another.
    why: what a reader should know of it; empty where the recipe asked for just this.
    before, after: bytes of the parameters that it is the first to read.
    """

    layer: str
    op: str
    runs: str
    why: str = ""
    before: int = 0
    after: int = 0


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

    def __str__(self) -> str:
        rows = [_cells(row) for row in self.rows]
        return "\n".join([table(_HEAD, rows, right=(3, 4)), *self.notes, self.totals])

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{escape(name)}</th>" for name in _HEAD)
        body = "".join(
            f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>"
            for row in self.rows
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


def _cells(row: Row) -> tuple[str, ...]:
    shown = [size(count) if count else "" for count in (row.before, row.after)]
    return (row.layer or "(the model)", row.op, row.runs, *shown, row.why)
