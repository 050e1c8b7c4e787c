"""What it costs to score records one by one, and what the cache saves.

Run with the project's environment: `python benchmarks/users/scoring.py [--records 100000] [--rounds
7] [--json FILE]`. Records of 16 features go through a network with 64 hidden units and 26 labels,
on one thread. The sides take turns; medians count, and the claims are ratios within one run. That
all ways give the same bits is checked in every round.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.client.records.records import Records
from confide.client.records.score_cache import probabilities
from confide.protocol.models.model_file import Model
from confide.protocol.models.session import Session
from tests.support.networks.graphs import in_batches, network, one_by_one

FEATURES, LABELS = 16, 26


def measure(records: int, rounds: int) -> dict[str, float]:
    """Median seconds of each way of scoring all records."""
    values = np.random.default_rng(1).normal(size=(records, FEATURES)).astype(np.float32)
    names = tuple(str(i).encode() for i in range(records))
    own = Records(names, None, np.zeros(records, dtype=np.int64), None, values)
    old = records * 99 // 100
    most = Records(names[:old], None, own.truth[:old], None, values[:old])
    model = network(FEATURES, 64, LABELS)
    session = model.open()
    spent: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for turn in range(rounds + 1):
            # The first turn only warms up.
            for name, seconds in take_turn(
                session, model, own, most, Path(folder) / str(turn)
            ).items():
                spent.setdefault(name, []).extend([seconds] if turn else [])
    return {name: median(seconds) for name, seconds in spent.items()}


def take_turn(
    session: Session, model: Model, own: Records, most: Records, folder: Path
) -> dict[str, float]:
    """Seconds of each way, after a check that the scores are the same."""
    assert own.features is not None
    values, fresh, older = own.features, folder / "fresh", folder / "older"
    probabilities(most, model, labels=LABELS, cache=older)
    ways: dict[str, Callable[[], Any]] = {
        "one by one": lambda: one_by_one(session, values, LABELS),
        "in batches (a vetted model)": lambda: in_batches(session, values, LABELS),
        "one by one, into the cache": lambda: probabilities(own, model, labels=LABELS, cache=fresh),
        "from the cache": lambda: probabilities(own, model, labels=LABELS, cache=fresh),
        "from the cache, one record in a hundred new": lambda: probabilities(
            own, model, labels=LABELS, cache=older
        ),
    }
    spent, expected = {}, None
    for name, work in ways.items():
        started = time.perf_counter()
        found = work()
        spent[name] = time.perf_counter() - started
        expected = found if expected is None else expected
        if not np.array_equal(found, expected):
            raise SystemExit(f"scores differ: {name}")
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=100_000, help="records (default 100,000)")
    parser.add_argument("--rounds", type=int, default=7, help="rounds (default 7)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    arguments = parser.parse_args()
    if arguments.records < 1000 or arguments.rounds < 1:
        parser.error(
            f"{arguments.records} records, {arguments.rounds} rounds; accepted are at least 1,000 "
            "and 1"
        )
    spent = measure(arguments.records, arguments.rounds)
    ratios = {
        "one by one / in batches": (
            spent["one by one"] / spent["in batches (a vetted model)"],
            "at most 40",
        ),
        "first round / later ones, from the cache": (
            spent["one by one, into the cache"] / spent["from the cache"],
            "at least 50",
        ),
    }
    rows: list[dict[str, Any]] = [
        {"what": name, "seconds": seconds, "each (us)": 1e6 * seconds / arguments.records}
        for name, seconds in spent.items()
    ]
    rows += [{"what": name, "ratio": ratio, "goal": goal} for name, (ratio, goal) in ratios.items()]
    table = Table(
        title=f"scoring {arguments.records:,} records; all ways give the same bits",
        title_justify="left",
    )
    for heading in ("what", "seconds", "each (us)", "ratio", "goal"):
        table.add_column(heading, no_wrap=True)
    for row in rows:
        seconds, each, ratio = (row.get(key) for key in ("seconds", "each (us)", "ratio"))
        table.add_row(
            row["what"],
            "" if seconds is None else f"{seconds:.4f}",
            "" if each is None else f"{each:.2f}",
            "" if ratio is None else f"{ratio:.1f}",
            row.get("goal", ""),
        )
    Console(width=None if sys.stdout.isatty() else 120).print(table)
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
