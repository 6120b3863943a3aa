"""Where things are, and the files that make up the repository."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "halfstep"
ROOMS = tuple(sorted(path.parent.name for path in PACKAGE.glob("*/__init__.py")))


def committed_files() -> list[Path]:
    """Every file that git holds or would hold; without git, every file outside build folders."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],  # noqa: S607
        capture_output=True,
        check=False,
        cwd=ROOT,
        text=True,
    )
    if listed.returncode == 0:
        return [path for name in listed.stdout.split("\0") if (path := ROOT / name).is_file()]
    skipped = {".venv", "build", "dist", ".git"}
    return [p for p in ROOT.rglob("*") if p.is_file() and not skipped & set(p.parts)]


def documents() -> list[Path]:
    """The Markdown files that a reader sees."""
    return [path for path in committed_files() if path.suffix == ".md"]
