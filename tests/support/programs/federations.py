"""The federation that tests run: nodes, records, campaigns, and the command that starts it."""

import sys
from pathlib import Path

NODES, RECORDS, SEED, SIZES = 12, 6_000, 3, "1 1 4"
# The share of nodes that never answer; with this seed it is two of them.
DROPOUT = 0.1
CAMPAIGNS = (
    "labels:certified bits:certified pairs:class-conditional central:trusted central:owner-noised "
    "training:federated-averaging"
)


def command(out: Path, *more: str) -> list[str]:
    given = [
        "--nodes",
        str(NODES),
        "--records",
        str(RECORDS),
        "--seed",
        str(SEED),
        "--out",
        str(out),
    ]
    return [sys.executable, "-m", "confide", "federation", *given, *more]
