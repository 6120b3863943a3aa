"""A recipe as Python that a user can paste after ``import halfstep as hs``."""

import ast
import re
from collections.abc import Iterator, Sequence

from halfstep.spec import QDType, Rule
from halfstep.spec.recipe import Recipe
from halfstep.spec.recipes import dynamic_int8, static_int8, weight_only

# The name that ``weight_only`` gives its recipes.
_WEIGHT_ONLY = re.compile(
    r"weight_only\(int(?P<bits>[2-8])(, group_size=(?P<size>[2-9]|[1-9]\d+))?\)"
)


def to_python(recipe: Recipe, base: Recipe) -> str:
    """The recipe as Python; what it adds to ``base``, the recipe of a result, where it adds to it.

    >>> base = Recipe("mine", [Rule("fc*", keep_float=True)])
    >>> print(to_python(base.with_rules(Rule("conv1", keep_float=True)), base))
    recipe = result.recipe.with_rules(
        hs.Rule('conv1', keep_float=True),
    )
    """
    for name, start in (*_named(recipe), ("result.recipe", base)):
        added = _added(recipe, start)
        if added is not None:
            more = _call("with_rules", [_source(rule) for rule in added])
            extra = recipe.remedies[len(start.remedies) :]
            return f"recipe = {name}{more}" + _call("with_remedies", list(map(_source, extra)))
    return f"recipe = {_whole(recipe)}"


def rules_to_python(rules: Sequence[Rule]) -> str:
    """Rules as Python, one a line.

    >>> rules_to_python([Rule("fc", keep_float=True)])
    "hs.Rule('fc', keep_float=True)"
    """
    return "\n".join(map(_source, rules))


def _named(recipe: Recipe) -> Iterator[tuple[str, Recipe]]:
    """The recipe of Halfstep's own that a recipe begins with, which needs no result at hand."""
    for make in (static_int8, dynamic_int8):
        if recipe.name == make.__name__:
            yield f"hs.recipes.{recipe.name}()", make()
    found = _WEIGHT_ONLY.fullmatch(recipe.name)
    if found is not None:
        dtype = QDType.with_bits(int(found["bits"]), signed=True)
        size = None if found["size"] is None else int(found["size"])
        yield f"hs.recipes.{recipe.name.replace('(', '(hs.')}", weight_only(dtype, size)


def _added(recipe: Recipe, base: Recipe) -> tuple[Rule, ...] | None:
    """The rules before those of the base; None where the rest is another."""
    count = len(recipe.rules) - len(base.rules)
    ends = count >= 0 and recipe.rules[count:] == base.rules and recipe.defaults == base.defaults
    begins = recipe.remedies[: len(base.remedies)] == base.remedies
    return recipe.rules[:count] if ends and begins else None


def _call(method: str, arguments: Sequence[str]) -> str:
    if not arguments:
        return ""
    lines = "".join(f"    {argument},\n" for argument in arguments)
    return f".{method}(\n{lines})"


def _whole(recipe: Recipe) -> str:
    rules, defaults = ([_source(rule) for rule in some] for some in (recipe.rules, recipe.defaults))
    lines = [f"hs.Recipe({recipe.name!r}, ["]
    lines += [f"    {rule}," for rule in rules]
    lines += ["], defaults=["] + [f"    {rule}," for rule in defaults] if defaults else []
    return "\n".join([*lines, "])"]) + _call("with_remedies", list(map(_source, recipe.remedies)))


def _source(value: object) -> str:
    """The value's text, with ``hs.`` before names of Halfstep; as it is where it is no Python."""
    try:
        tree = ast.parse(repr(value), mode="eval")
    except SyntaxError:
        return repr(value)
    return ast.unparse(_Prefixed().visit(tree))


class _Prefixed(ast.NodeTransformer):
    """Writes ``hs.`` before each name but that of torch."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in {"torch", "hs"}:
            return node
        return ast.Attribute(ast.Name("hs", ast.Load()), node.id, ast.Load())
