"""How fast are whole networks in int8, against everything else that a user could run?

    python benchmarks/int8_models.py [--models resnet18 minilm] [--threads 1 2] [--batches 1 16]

By default every network, 1 and 2 threads, batches of 1 and 16: an hour, most of which the peers
take to compile. One network with one number of threads and one batch is a minute or two. What is
not installed, and what cannot run a network, stands in the table with the reason.
"""

import argparse
import importlib.util
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from networks import NETWORKS, Network
from peers import PEERS, Call, Peer
from rich.console import Console
from rich.table import Table
from timing import KEEP_PAGES, RESULTS, machine
from torch import Tensor

import halfstep as hs
from halfstep.flows.timing import medians

AT_MOST = 1.10


@dataclass(frozen=True)
class Timed:
    """One way to run one network: milliseconds, or why there are none."""

    network: str
    batch: int
    threads: int
    name: str
    kind: str
    milliseconds: float | None = None
    sqnr: float | None = None
    error: str = ""


def _ours(kind: str, engine: str) -> Callable[[Network, int], Call]:
    def build(network: Network, threads: int) -> Call:
        if kind == "static":
            result = hs.ptq.quantize(
                network.model, network.calibration, progress=False, check="none"
            )
        else:
            # With data it is traced as a whole, so that other engines run it as well.
            result = hs.ptq.quantize(
                network.model,
                network.calibration[:2],
                hs.recipes.dynamic_int8(),
                progress=False,
                check="none",
            )
        model = hs.deploy(result, engine, example=network.inputs)
        return lambda: model(*network.inputs)

    return build


def ours() -> Iterator[Peer]:
    """Halfstep, once on its own engine and once on the fastest that is installed."""
    for kind in ("static", "dynamic"):
        yield Peer(f"halfstep torch {kind}", kind, (), _ours(kind, "torch"))
        yield Peer(f"halfstep auto {kind}", kind, (), _ours(kind, "auto"))


def build(peer: Peer, network: Network, threads: int) -> Call:
    """The peer's call, tried once; raises whatever the peer raises."""
    missing = [name for name in peer.needs if importlib.util.find_spec(name) is None]
    if missing:
        raise ModuleNotFoundError(f"not installed: {', '.join(missing)}")
    call = peer.build(network, threads)
    call()
    return call


def measure(network: Network, threads: int, batch: int, seconds: float) -> list[Timed]:
    """Every peer on one network, in turns."""
    torch.set_num_threads(threads)
    expected = network.model(*network.inputs)
    calls: dict[str, Call] = {}
    rows = []
    for peer in (*ours(), *PEERS):
        if peer.kind != "float" and peer.kind not in network.kinds:
            continue
        row = Timed(network.name, batch, threads, peer.name, peer.kind)
        try:
            calls[peer.name] = build(peer, network, threads)
            rows.append(replace(row, sqnr=sqnr(expected, calls[peer.name]())))
        except Exception as error:  # noqa: BLE001  (whatever a peer fails with is its result)
            rows.append(replace(row, error=first_line(error)))
        print(f"  {peer.name}: {rows[-1].error or 'built'}", file=sys.stderr)
    times = medians(calls, seconds)
    return [replace(row, milliseconds=times.get(row.name)) for row in rows]


def sqnr(expected: Tensor, given: Any) -> float:
    """Decibels of the output against the float model's."""
    noise = (expected - given).double().pow(2).sum()
    return float(10 * torch.log10(expected.double().pow(2).sum() / noise))


def first_line(error: BaseException) -> str:
    """What went wrong, short enough for a table."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"[:90]


def print_table(rows: list[Timed]) -> None:
    """The fastest first; a peer that ours on the fastest engine is slower than stands in red."""
    first = rows[0]
    table = Table(
        title=f"{first.network}, batch {first.batch}, {first.threads} threads",
        caption="time of halfstep / time of the row, of the same kind (float rows: static)",
    )
    for heading in ("auto / it", "torch / it"):
        table.add_column(heading, justify="right")
    table.add_column("runs as")
    for heading in ("ms", "SQNR dB"):
        table.add_column(heading, justify="right")
    for row in sorted(rows, key=lambda row: row.milliseconds or float("inf")):
        ratios = [_ratio(rows, row, engine) for engine in ("auto", "torch")]
        if row.milliseconds is None:
            table.add_row("-", "-", f"{row.name}: {row.error}", "-", "-")
        else:
            table.add_row(*ratios, row.name, f"{row.milliseconds:.2f}", f"{row.sqnr:.1f}")
    console = Console()
    (console if console.is_terminal else Console(width=130)).print(table)


def _ratio(rows: list[Timed], row: Timed, engine: str) -> str:
    kind = "static" if row.kind == "float" else row.kind
    own = next((r.milliseconds for r in rows if r.name == f"halfstep {engine} {kind}"), None)
    if own is None or row.milliseconds is None:
        return "-"
    ratio = own / row.milliseconds
    return f"[{'green' if ratio <= AT_MOST else 'red'}]{ratio:.2f}[/]"


def write_json(rows: list[Timed]) -> Path:
    """Write the rows and the machine to ``results/int8_models.json``."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / "int8_models.json"
    content = {"machine": machine(), "rows": [asdict(row) for row in rows]}
    path.write_text(json.dumps(content, indent=1) + "\n")
    return path


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--batches", nargs="+", type=int, choices=range(1, 17), default=[1, 16])
    parser.add_argument("--seconds", type=float, default=20.0, help="of timing for each table")
    return parser.parse_args()


def main() -> None:
    """Measure, print and write the tables."""
    options = _options()
    if any(os.environ.get(name) != value for name, value in KEEP_PAGES.items()):
        # malloc reads its settings when a process starts.
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | KEEP_PAGES)  # noqa: S606  (itself again)
    warnings.simplefilter("ignore")  # torch.ao announces its removal, exporters what they changed
    logging.disable(logging.WARNING)
    rows: list[Timed] = []
    with torch.no_grad():
        for name in options.models:
            for batch in options.batches:
                network = NETWORKS[name](batch)
                for threads in options.threads:
                    rows += (table := measure(network, threads, batch, options.seconds))
                    print_table(table)
    print("wrote", write_json(rows))


if __name__ == "__main__":
    main()
