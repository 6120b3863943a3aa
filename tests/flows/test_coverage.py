"""The coverage table: a row for every operator, what it says, and how it is shown."""

import json

import pytest
import torch
from torch import nn

import halfstep as hs
from halfstep.flows import ptq
from halfstep.flows.coverage import Coverage, Row
from halfstep.flows.summary import Summary
from tests.graph import zoo
from tests.graph.zoo import rand


@pytest.fixture(scope="module")
def coverage() -> Coverage:
    """Of a residual block, after which nothing is quantized."""
    model = nn.Sequential(zoo.Block(), nn.Flatten(2), nn.Softmax(-1)).eval()
    return ptq.quantize(model, rand(4, 3, 8, 8)).coverage


def test_every_operator_has_a_row(coverage: Coverage) -> None:
    """In the order of the program, with how it runs, why not in integers, and its bytes."""
    found = [(row.layer, row.op, row.runs) for row in coverage]
    assert found[:2] == [
        ("0.bn1", "batch_norm", "folded"),
        ("0.bn2", "batch_norm", "folded"),
    ]
    assert ("0.conv1", "conv2d", "int8") in found
    assert ("2", "softmax", "float") in found
    (softmax,) = coverage.of("2")
    assert softmax.why == "softmax has no integer form"
    (conv,) = coverage.of("0.conv1")
    # 216 weights as codes, and scale and zero point of 8 channels.
    assert (conv.before, conv.after) == (216 * 4, 216 + 8 * 8)
    assert coverage.of("0.bn1")[0].why == "into 0.conv1"
    assert not any(row.op.startswith(("getitem", "sym_size")) for row in coverage)


def test_a_norm_that_stays_says_why() -> None:
    """One that follows no layer, or whose layer is used twice."""
    model = nn.Sequential(nn.ReLU(), nn.BatchNorm1d(6), nn.Linear(6, 4)).eval()
    (row,) = ptq.quantize(model, rand(8, 6)).coverage.of("1")
    assert row.runs == "float"
    assert "no weight to fold it into" in row.why


def test_python_that_stays_is_listed() -> None:
    """A model that decides on values: why, and the parts of it that run in integers."""
    coverage = ptq.quantize(zoo.Branching().eval(), rand(4, 3, 8, 8)).coverage
    assert (coverage[0].layer, coverage[0].op, coverage[0].runs) == ("", "(Python)", "float")
    assert "depends on the values of a tensor" in coverage[0].why
    assert {row.runs for row in coverage.of("head")} == {"int8"}
    assert coverage.of("body.conv1")[0].runs == "int8"


def test_shared_weights_are_counted_once() -> None:
    """At the first operator that reads them."""
    coverage = ptq.quantize(zoo.Tied().eval(), zoo.tokens(4, 5)).coverage
    assert [row.before for row in coverage.of("embedding")] == [240]
    assert [row.before for row in coverage.of("out")] == [0]


def test_channels_that_are_zero_are_named() -> None:
    """Of a weight, and of a value: their scale is 1."""
    model = nn.Sequential(nn.Linear(6, 4), nn.ReLU(), nn.Linear(4, 3)).eval()
    with torch.no_grad():
        model[0].weight[[1, 3]] = 0
        model[2].weight.fill_(0.5)
        model[0].bias.fill_(-100)
    notes = ptq.quantize(model, rand(8, 6)).coverage.notes
    assert "0.weight is all zero in 2 of its 4 ranges, whose scale is 1: 1, 3" in notes
    assert "1 was zero in all data: its scale is 1" in notes
    assert not any("2.weight" in note for note in notes)


def test_it_prints_within_a_terminal(coverage: Coverage) -> None:
    """At most 100 columns, also with long names and reasons, and totals in the last line."""
    deep = Row(
        "encoder.layers.11.attention.self.query_key_value" * 2, "conv2d", "float", "why " * 60
    )
    for table in (coverage, Coverage((*coverage.rows, deep), ("a note",))):
        lines = str(table).splitlines()
        assert max(map(len, lines)) <= 100
        assert lines[0].split() == ["layer", "op", "runs", "as", "before", "after", "why"]
    assert "a note" in lines
    assert str(coverage).splitlines()[-1] == (
        "4 of 8 operators in integers (4 int8); their parameters: 3.3 kB before, 1.0 kB after"
    )


def test_it_shows_in_a_notebook(coverage: Coverage) -> None:
    """As a table, with names that are no HTML."""
    odd = Coverage((Row("<b>", "conv2d", "int8", "a & b"),), ("x < y",))
    html = odd._repr_html_()
    assert "<td>&lt;b&gt;</td>" in html
    assert "a &amp; b" in html
    assert "<p>x &lt; y</p>" in html
    assert coverage._repr_html_().count("<tr>") == len(coverage) + 1


def test_it_is_written_and_read(coverage: Coverage) -> None:
    """As JSON and back; so is a summary; anything else is an error."""
    assert Coverage.from_dict(json.loads(json.dumps(coverage.to_dict()))) == coverage
    summary = ptq.quantize(nn.Linear(6, 4), rand(8, 6)).summary
    assert Summary.from_dict(json.loads(json.dumps(summary.to_dict()))) == summary
    for wrong in ({}, {"rows": [{"layers": "x"}], "notes": []}):
        with pytest.raises(hs.ArgumentError, match="this is no coverage"):
            Coverage.from_dict(wrong)
    with pytest.raises(hs.ArgumentError, match="this is no summary"):
        Summary.from_dict({"size": 3})


def test_the_summary_says_size_accuracy_and_equality() -> None:
    """In a few lines."""
    lines = str(ptq.quantize(nn.Linear(64, 64), [rand(8, 64), rand(9, 64)])).splitlines()
    assert lines[0] == "recipe: static_int8 (chosen since batches were given)"
    assert lines[1] == "size: 16.6 kB before, 4.9 kB after (0.29)"
    assert lines[2] == "calibrated on: 2 batches"
    assert lines[3].startswith("output SQNR: ")
    assert lines[3].endswith(" dB against the float model on 2 batches")
    assert lines[4].startswith("engine torch: equal to the reference in all 64 integers")
    assert len(lines) == 5


def test_moves_in_float_are_shown_as_one() -> None:
    """A reader of a transformer's table sees its work; every operator is among the rows."""
    rows = (
        Row("attention", "view", "float", "why"),
        Row("attention", "transpose", "float", "why"),
        Row("attention", "view", "float", "why"),
        Row("attention", "softmax", "float"),
        Row("attention", "view", "int8"),
        Row("other", "view", "float", "alone"),
    )
    shown = str(Coverage(rows)).splitlines()
    assert shown[1].split() == ["attention", "3", "moves", "float", "view,", "transpose"]
    assert [line.split()[1] for line in shown[2:5]] == ["softmax", "view", "view"]
    assert shown[4].endswith("alone")
    assert len(Coverage(rows)) == len(rows)
