"""What a round of training costs in transport, next to an echo of as many bytes.

Run with the project's environment: `python benchmarks/service/weights.py [--sizes 100000 4000000]
[--turns 5] [--json FILE]`. A round of one owner is: fetch the query, send the answer until it is
durable, and wait until the aggregator has averaged it and asks the next query. Nothing is trained,
so this is what training adds to nothing. The echo is a plain gRPC service in a process of its own
that is sent the bytes of the query and of the answer in messages of 1 MB, and sends them back. Both
go without TLS over the loopback device, and take turns; the claim is the median of the ratios. The
row `flower` passes the same query and answer through Flower's own messages in process: record,
bytes, record. The rows `SuperNode` are those of a real SuperLink and SuperNode
(`weights_flower.py`), with TLS; `--no-supernode` leaves them out.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
from flwr.app import ConfigRecord, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as FlowerBytes

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.service.ingest import ECHO
from benchmarks.service.weights_flower import measure_flower
from confide.client.transport.grpc_client import Access, Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.simulated.settings import CONTENT
from confide.protocol.wire.service import PIECE_BYTES
from confide.protocol.wire.splitting import split_answer
from tests.support.servers.servers import Place, eventually
from tests.support.training.federated_trainings import terms_of, training_plan, weights_answer

# Features and labels of linear networks with these numbers of weights.
SHAPES = {100_000: (399, 250), 4_000_000: (1999, 2000)}


class Sides:
    """An echo service, and a server with a training of one owner."""

    def __init__(self, folder: Path, size: int, rounds: int) -> None:
        self.echo_process = subprocess.Popen(
            [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True
        )
        assert self.echo_process.stdout is not None
        port = int(self.echo_process.stdout.readline())
        self.echo_channel = grpc.insecure_channel(f"127.0.0.1:{port}")
        features, labels = SHAPES[size]
        self.plan = training_plan(
            features=features, labels=labels, rounds=rounds, **{"local-steps": 1}
        )
        assert terms_of(self.plan).size == size
        self.place = Place(folder)
        campaign, token = self.place.campaign(self.plan, owners=1), self.place.enrol("owner")
        self.server = self.place.serve("--rate", "1e9", "--byte-rate", "1e12", insecure=True)
        access = Access(f"127.0.0.1:{self.server.port}", token)
        self.remote = Aggregator(access, campaign, patience=Patience(60))
        self.query: bytes = eventually(self.remote.query)

    def echo(self, *parts: bytes) -> None:
        messages = [
            part[start : start + PIECE_BYTES]
            for part in parts
            for start in range(0, len(part), PIECE_BYTES)
        ]
        call = self.echo_channel.stream_stream("/echo/Echo")
        assert sum(1 for _ in call(iter(messages))) == len(messages)

    def fetch(self) -> None:
        assert self.remote.query() == self.query

    def send(self, answer: bytes) -> None:
        pieces = split_answer(answer, self.plan, most=PIECE_BYTES)
        assert self.remote.submit(pieces, ask=lambda: None).accepted == 1

    def next_round(self) -> None:
        """Wait until the aggregator asks its next query."""
        while (found := self.remote.query()) in (None, self.query):
            time.sleep(0.01)
        assert found is not None
        self.query = found

    def close(self) -> None:
        self.echo_process.kill()
        self.echo_process.wait()
        self.place.close()


def timed(work: Callable[[], object]) -> float:
    """The seconds that work takes, waiting included."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def through_flower(name: str, data: bytes) -> None:
    """Put bytes into a record of Flower, the record into bytes, and take them out again."""
    record = RecordDict({CONTENT: ConfigRecord({name: data})})
    sent = recorddict_to_proto(record).SerializeToString()
    found: Any = recorddict_from_proto(FlowerBytes.FromString(sent))[CONTENT]
    assert found[name] == data


def measure(folder: Path, size: int, turns: int) -> Iterator[dict[str, Any]]:
    """The rows of one size. The first turn only warms up."""
    sides, rng = Sides(folder, size, turns + 2), np.random.default_rng(1)
    seconds: dict[str, list[float]] = {
        name: [] for name in ("echo", "fetch", "send", "average", "flower")
    }
    try:
        for number in range(turns + 1):
            weights = rng.uniform(-1, 1, size).astype(np.float32)
            answer, query = weights_answer(sides.plan, weights, round_=number), sides.query
            seconds["echo"].append(timed(lambda: sides.echo(query, answer)))  # noqa: B023
            both = {"query": query, "answer": answer}
            flower = timed(lambda: [through_flower(*one) for one in both.items()])  # noqa: B023
            seconds["flower"].append(flower)
            seconds["fetch"].append(timed(sides.fetch))
            seconds["send"].append(timed(lambda: sides.send(answer)))  # noqa: B023
            seconds["average"].append(timed(sides.next_round))
        for name in ("fetch", "send", "average", "flower"):
            ratios = np.divide(seconds[name][1:], seconds["echo"][1:])
            yield {
                "weights": size,
                "what": name,
                "bytes": {"fetch": len(query), "send": len(answer)}.get(
                    name, len(query) + len(answer)
                ),
                "seconds": round(median(seconds[name][1:]), 4),
                "echo, seconds": round(median(seconds["echo"][1:]), 4),
                "of echo": round(float(np.median(ratios)), 2),
                "from": round(float(ratios.min()), 2),
                "to": round(float(ratios.max()), 2),
                "server, MB": round(sides.server.megabytes),
            }
    finally:
        sides.close()


def through_supernode(sizes: list[int], turns: int) -> list[dict[str, Any]]:
    """The rows of a real SuperNode, next to an echo service of their own."""
    process = subprocess.Popen([sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with tempfile.TemporaryDirectory() as folder:
            return measure_flower(Path(folder), sizes, turns=turns, echo=port)
    finally:
        process.kill()
        process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sizes = list(SHAPES)
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes, choices=sizes)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--no-supernode", action="store_true", help="without a real SuperNode")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as folder:
            for row in measure(Path(folder), size, given.turns):
                rows.append(row)
                print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if not given.no_supernode:
        for row in through_supernode(given.sizes, given.turns):
            rows.append(row)
            print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
