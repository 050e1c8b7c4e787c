"""What an aggregator was measured to spend on a phone: the numbers that the model is made of."""

import json
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from confide.protocol.errors import BadInput

# What `benchmarks/laboratory/scale.py measure` found on two cores; docs/scale.md has the table.
MEASURED = Path(__file__).with_name("costs.json")


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Seconds and bytes of one database engine, from `benchmarks/laboratory/scale.py measure`.

    A phone visits with one report over a connection of its own: TLS, plan, query, submission.
    `visit` is the time of the server process for that, and `refused` for a visit that finds no
    place. A transaction holds the round for `transaction` and `batch` for every answer in it, and
    for `foreign` for every answer that other processes have stored since; the round's owner of a
    campaign reads each again for the tally in `tally`.
    """

    visit: float
    refused: float
    transaction: float
    batch: float
    foreign: float
    tally: float
    # Bytes of a visit on the wire, both ways; of a phone's rows on disk; of an id in memory.
    wire: float
    disk: float
    enrolled: float
    memory: float
    # Seconds for an owner that is enrolled, each time a process reads who is; and for an owner that
    # has answered in the round, each time its counts are read.
    directory: float = 0.0
    turnout: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value < float("inf"):
                raise BadInput(f"{field.name} is {value}; accepted are numbers from 0")
        if not self.visit:
            raise BadInput("visit is 0; accepted is a time above 0")


def read_costs(file: Path, engine: str) -> Costs:
    """Read the costs of a database engine from a file of measurements."""
    try:
        found: dict[str, Any] = json.loads(file.read_text())["costs"]
        return Costs(**found[engine])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{file} has no costs of {engine!r} ({error}); accepted is a file that "
            "`benchmarks/laboratory/scale.py measure` wrote"
        ) from None
