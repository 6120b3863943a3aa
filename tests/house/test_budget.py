"""Small enough to read: lines per function, per file, and in all."""

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.repository import PACKAGE, ROOT, committed_files

FUNCTION_LINES = 40
FILE_LINES = 300
# Raising one of these needs a sentence in the commit that says what the lines buy.
PACKAGE_LINES = 38_000
KERNEL_LINES = 4_300

CODE = {".py", ".cpp", ".hpp", ".h"}


def lines(path: Path) -> int:
    """Lines of a file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Each function of a Python file with its length, the docstring not counted."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            uncounted = span(node.body[0]) if ast.get_docstring(node) else 0
            yield node.name, span(node) - uncounted


def span(node: ast.stmt) -> int:
    """Lines from the first to the last of a statement."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def test_functions_fit_on_a_screen() -> None:
    """No function has more lines than a screen."""
    long = [
        f"{path.relative_to(ROOT)}: {name} has {length} lines"
        for path in committed_files()
        if path.suffix == ".py"
        for name, length in functions(path)
        if length > FUNCTION_LINES
    ]
    assert not long, "\n".join(long)


def test_files_are_short() -> None:
    """No source file, native and tests included, is longer than a reader's patience."""
    sizes = {path: lines(path) for path in committed_files() if path.suffix in CODE}
    long = [f"{p.relative_to(ROOT)}: {n} lines" for p, n in sizes.items() if n > FILE_LINES]
    assert not long, "\n".join(long)


def test_package_stays_small() -> None:
    """The package and the kernels grow only on purpose."""
    package = sum(map(lines, PACKAGE.rglob("*.py")))
    kernels = sum(lines(path) for path in (ROOT / "csrc").rglob("*") if path.suffix in CODE)
    assert package <= PACKAGE_LINES, f"{package} lines in src/halfstep, {PACKAGE_LINES} allowed"
    assert kernels <= KERNEL_LINES, f"{kernels} lines in csrc, {KERNEL_LINES} allowed"


def test_the_measure_sees_a_long_function(tmp_path: Path) -> None:
    """The budget itself is tested: 41 statements are too many, and the docstring is free."""
    body = "\n".join(f"    x = {i}" for i in range(FUNCTION_LINES + 1))
    file = tmp_path / "long.py"
    file.write_text(f'def f():\n    """One.\n\n    Two.\n    """\n{body}\n', encoding="utf-8")
    ((name, length),) = functions(file)
    assert name == "f"
    assert length > FUNCTION_LINES
