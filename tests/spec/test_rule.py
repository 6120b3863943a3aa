"""Rule: what a rule says, and the two that say nothing or too much."""

import pytest

from halfstep.errors import ArgumentError
from halfstep.spec import PerChannel, QSpec, Rule, int8


def test_a_rule_that_asks_for_nothing() -> None:
    """Without a format and without keep_float there is nothing to do; an observer is none."""
    for rule in (lambda: Rule("fc"), lambda: Rule("fc", observer=object)):
        with pytest.raises(ArgumentError) as error:
            rule()
        assert str(error.value) == (
            "the rule for 'fc' asks for nothing: give weight=, input=, output= or keep_float=True"
        )


def test_a_rule_that_contradicts_itself() -> None:
    """keep_float beside a format: the error names the formats that were given."""
    with pytest.raises(ArgumentError) as error:
        Rule("fc", weight=int8, output=int8, keep_float=True)
    assert str(error.value) == (
        "the rule for 'fc' says keep_float=True and also weight, output: leave one of them out"
    )
    with pytest.raises(ArgumentError) as error:
        Rule("fc", observer=object, keep_float=True)
    assert str(error.value) == (
        "the rule for 'fc' says keep_float=True and also observer: leave one of them out"
    )


def test_a_rule_prints_what_it_was_given() -> None:
    """Only what was given, a class by its name."""
    rule = Rule("fc", weight=QSpec(int8, PerChannel(0)), input=int8, observer=dict)
    shown = "weight=QSpec(int8, PerChannel(axis=0)), input=int8, observer=dict"
    assert repr(rule) == f"Rule('fc', {shown})"
    assert repr(Rule("fc", keep_float=True)) == "Rule('fc', keep_float=True)"
