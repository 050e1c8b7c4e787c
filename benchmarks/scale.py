"""A plan for a hundred million phones that answer once a week: measured, simulated, compared.

Run with the project's environment:

    python benchmarks/scale.py measure --postgres    # costs here, to benchmarks/scale.json
    python benchmarks/scale.py compare               # the simulation beside a real server, small
    python benchmarks/scale.py plan --plot docs/scale.svg

`measure` times real servers and databases (`scale_costs.py`). `compare` lets phones visit a real
server over TLS, as a Poisson process with the real client, and simulates the same. `plan` prints
the tables of docs/scale.md from the costs in the file (`scale_plan.py`).
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from local_tables import table

sys.path.insert(0, str(Path(__file__).parent.parent))

import scale_plan
from scale_costs import Aggregating, costs

from confide.simulation.scale.arrivals import WEEK, Daily
from confide.simulation.scale.costs import Costs, read_costs
from confide.simulation.scale.queueing import Region, simulate
from tests.support.postgres import postgres
from tests.support.servers import Place

FILE = Path(__file__).with_name("scale.json")
LOADS, SECONDS = (0.15, 0.3, 0.45, 0.6), 12.0


def measured(engine: str, *, phones: int) -> dict[str, float]:
    """The costs of one database engine."""
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(Path("/tmp")) if engine == "postgres" else nullcontext("") as url,
    ):
        place = Place(Path(folder), url)
        try:
            return costs(place, phones=phones)
        finally:
            place.close()


def visited(server: Aggregating, moments: list[float], answers: Iterator[Any]) -> list[float]:
    """Seconds from the moment of each phone to its receipt."""
    began = time.perf_counter() + 0.5

    def visit(moment: float) -> float:
        token, answer = next(answers)
        time.sleep(max(0.0, began + moment - time.perf_counter()))
        server.visit(token, answer)
        return time.perf_counter() - began - moment

    with ThreadPoolExecutor(64) as pool:
        return list(pool.map(visit, moments))


def compared(found: Costs, *, seconds: float) -> list[dict[str, float]]:
    """Real visits at several loads beside simulated ones; the first row is one by one."""
    rng, rows = np.random.default_rng(3), []
    rates = [load / found.visit for load in LOADS]
    drawn = [Daily(phones=rate * WEEK, swing=0).draw(0, seconds, rng=rng) for rate in rates]
    phones = 60 + sum(len(moments) for moments in drawn)
    with tempfile.TemporaryDirectory() as folder:
        server = Aggregating(Place(Path(folder)), phones=phones)
        try:
            answers = iter(list(zip(server.tokens, server.messages(phones, rng), strict=True)))
            alone = [visited(server, [0.0], answers)[0] for _ in range(60)]
            for rate, moments in zip(rates, drawn, strict=True):
                processor, clock = server.processor(), time.perf_counter()
                waits = visited(server, moments.tolist(), answers)
                clock = time.perf_counter() - clock - 0.5
                region = Region(processes=1, costs=found)
                model = simulate(
                    Daily(phones=rate * WEEK, swing=0), region, window=(0.0, 600.0), seed=4
                )
                # A phone's own time, which the model leaves out, is that of one by one.
                waited = model.waits - model.waits.min() + median(alone)
                rows.append(
                    {
                        "phones a second": len(moments) / seconds,
                        "receipts a second": len(moments) / clock,
                        "processor": (server.processor() - processor) / clock,
                        "simulated processor": model.working / 600,
                        "median, ms": 1e3 * float(np.median(waits)),
                        "simulated median, ms": 1e3 * float(np.median(waited)),
                        "95 %, ms": 1e3 * float(np.quantile(waits, 0.95)),
                        "simulated 95 %, ms": 1e3 * float(np.quantile(waited, 0.95)),
                    }
                )
        finally:
            server.place.close()
    return rows


def measure(given: argparse.Namespace) -> None:
    found = {
        engine: measured(engine, phones=given.phones)
        for engine in ("sqlite", *(["postgres"] if given.postgres else []))
    }
    growing = {
        engine: {name: each.pop(name) for name in ("directory", "turnout")}
        for engine, each in found.items()
    }
    for each in found.values():
        # The hash table of ids grows by doubling and is at most half full (report_ids.py).
        each["memory"] = 32.0
    text = {
        "command": f"python benchmarks/scale.py measure --phones {given.phones} --postgres",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "costs": found,
        "growing": growing,
    }
    given.file.write_text(json.dumps(text, indent=2) + "\n")
    print(json.dumps(text, indent=2))


def compare(given: argparse.Namespace) -> None:
    rows = compared(read_costs(given.file, "sqlite"), seconds=given.seconds)
    print(table([*rows[0]], [[f"{value:.3g}" for value in row.values()] for row in rows]))
    print(f"\nLoad of the machine: {os.getloadavg()[0]:.1f}.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--file", type=Path, default=FILE, help="the costs (default: scale.json)")
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("measure")
    one.add_argument("--phones", type=int, default=300)
    one.add_argument("--postgres", action="store_true")
    one.set_defaults(run=measure)
    one = parts.add_parser("compare")
    one.add_argument("--seconds", type=float, default=SECONDS)
    one.set_defaults(run=compare)
    one = parts.add_parser("plan")
    one.add_argument("--phones", type=float, default=1e8)
    one.add_argument("--plot", type=Path)
    one.set_defaults(run=lambda given: scale_plan.main(given.file, given.phones, given.plot))
    given = parser.parse_args()
    random.seed(1)
    given.run(given)


if __name__ == "__main__":
    main()
