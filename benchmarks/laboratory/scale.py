"""A plan for a hundred million phones that answer once a week: measured, simulated, compared.

Run with the project's environment:

    python benchmarks/laboratory/scale.py measure --postgres    # to simulation/scale/costs.json
    python benchmarks/laboratory/scale.py compare               # beside a real server, small
    python benchmarks/laboratory/scale.py compare --postgres --processes 2 --loads 0.05 0.1 0.15
    python benchmarks/laboratory/scale.py plan --plot docs/scale.svg

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
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import fields
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.laboratory import scale_plan
from benchmarks.laboratory.scale_costs import Aggregating, costs
from benchmarks.markdown import table
from confide.simulation.scale.arrivals import WEEK, Daily
from confide.simulation.scale.costs import MEASURED, Costs
from confide.simulation.scale.queueing import Region, simulate
from tests.support.servers.postgres import postgres
from tests.support.servers.servers import Place

LOADS, SECONDS = (0.15, 0.3, 0.45, 0.6), 12.0
# Phones that come one by one.
ALONE = 60
# The hash table of ids grows by doubling and is at most half full (report_ids.py).
ID_BYTES = 32.0


def measured(engine: str, *, phones: int) -> dict[str, float]:
    """The costs of one database engine."""
    with database(engine) as place:
        return costs(place, phones=phones)


@contextmanager
def database(engine: str) -> Iterator[Place]:
    """An aggregator's place with an empty database of this engine."""
    with (
        tempfile.TemporaryDirectory() as folder,
        postgres(Path("/tmp")) if engine == "postgres" else nullcontext("") as url,
    ):
        place = Place(Path(folder), url)
        try:
            yield place
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


def compared(
    engine: str, processes: int, *, loads: Sequence[float], seconds: float
) -> list[dict[str, float]]:
    """Real visits at several loads beside simulated ones, with costs measured just before."""
    found, rng = _costs(measured(engine, phones=ALONE)), np.random.default_rng(3)
    rates = [load * processes / found.visit for load in loads]
    drawn = [Daily(phones=rate * WEEK, swing=0).draw(0, seconds, rng=rng) for rate in rates]
    phones = ALONE * len(loads) + sum(len(moments) for moments in drawn)
    with database(engine) as place:
        server = Aggregating(place, phones=phones, processes=processes)
        answers = iter(list(zip(server.tokens, server.messages(phones, rng), strict=True)))
        return [
            _row(server, found, moments=moments, rate=rate, answers=answers)
            for rate, moments in zip(rates, drawn, strict=True)
        ]


def _row(
    server: Aggregating,
    found: Costs,
    *,
    moments: NDArray[np.float64],
    rate: float,
    answers: Iterator[Any],
) -> dict[str, float]:
    """One load: phones one by one, which the model takes for a phone's own time, and then all."""
    alone = [visited(server, [0.0], answers)[0] for _ in range(ALONE)]
    processor, clock = server.processor(), time.perf_counter()
    waits = visited(server, moments.tolist(), answers)
    clock = time.perf_counter() - clock - 0.5
    processor = server.processor() - processor
    count = len(server.servers)
    region = Region(processes=count, costs=found)
    model = simulate(Daily(phones=rate * WEEK, swing=0), region, window=(0.0, 600.0), seed=4)
    waited = model.waits - model.waits.min() + median(alone)
    return {
        "phones a second": rate,
        "receipts a second": len(moments) / clock,
        "processor": processor / clock / count,
        "simulated processor": model.working / 600 / count,
        "alone, ms": 1e3 * median(alone),
        "median, ms": 1e3 * float(np.median(waits)),
        "simulated median, ms": 1e3 * float(np.median(waited)),
        "95 %, ms": 1e3 * float(np.quantile(waits, 0.95)),
        "simulated 95 %, ms": 1e3 * float(np.quantile(waited, 0.95)),
    }


def _costs(found: dict[str, float]) -> Costs:
    return Costs(**{one.name: found.get(one.name, ID_BYTES) for one in fields(Costs)})


def measure(given: argparse.Namespace) -> None:
    found = {
        engine: measured(engine, phones=given.phones)
        for engine in ("sqlite", *(["postgres"] if given.postgres else []))
    }
    for each in found.values():
        each["memory"] = ID_BYTES
    text = {
        "command": "python benchmarks/laboratory/scale.py measure "
        f"--phones {given.phones} --postgres",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "costs": found,
    }
    given.file.write_text(json.dumps(text, indent=2) + "\n")
    print(json.dumps(text, indent=2))


def compare(given: argparse.Namespace) -> None:
    engine = "postgres" if given.postgres else "sqlite"
    before = os.getloadavg()[0]
    rows = compared(engine, given.processes, loads=given.loads, seconds=given.seconds)
    print(table([*rows[0]], [[f"{value:.3g}" for value in row.values()] for row in rows]))
    print(f"\n{engine}; load of the machine before: {before:.1f}, after: {os.getloadavg()[0]:.1f}.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--file", type=Path, default=MEASURED, help="the costs (default: those of the package)"
    )
    parts = parser.add_subparsers(required=True)
    one = parts.add_parser("measure")
    one.add_argument("--phones", type=int, default=300)
    one.add_argument("--postgres", action="store_true")
    one.set_defaults(run=measure)
    one = parts.add_parser("compare")
    one.add_argument("--seconds", type=float, default=SECONDS)
    one.add_argument("--loads", type=float, nargs="+", default=LOADS, help="of each process")
    one.add_argument("--postgres", action="store_true")
    one.add_argument("--processes", type=int, default=1, help="more than 1 with PostgreSQL only")
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
