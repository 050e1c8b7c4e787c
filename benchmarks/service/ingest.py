"""How fast the aggregator stores reports, next to a service that only echoes messages.

Run with the project's environment: `python benchmarks/service/ingest.py [--postgres] [--turns 15]
[--long 10000000] [--json FILE]`. Both services run in a process of their own behind the same gRPC
library without TLS, and get the same messages over one stream from this process. They take short
turns, many of them, so that what else the machine does meets both; one claim is the median of the
ratios. The other is the processor time of the server in units of the echo's, which hardly depends
on what else the machine does (of PostgreSQL it is that of the server alone, without the database).
`--long` then sends so many reports in messages of 10,000 and prints the memory of the server on the
way.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import grpc
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.protocol.methods.base import Batch
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import digest, read_query
from confide.protocol.wire import wire_pb2 as wire
from confide.protocol.wire.encoding import VERSION, serialise
from confide.protocol.wire.packing import write_batch
from confide.protocol.wire.service import AUTHORIZATION, CALLS, CAMPAIGN
from tests.support.owners.owners import PLAN, changed
from tests.support.servers.postgres import postgres
from tests.support.servers.servers import Place, eventually, plan_now

# Reports in a message, and messages sent in one turn.
SIZES = {1: 4_000, 100: 3_000, 10_000: 500}
TIDY_SECONDS = 2
ECHO = """
import asyncio, grpc
async def echo(messages, context):
    async for message in messages:
        yield message
async def main():
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 8 << 20)])
    handler = grpc.stream_stream_rpc_method_handler(echo)
    service = grpc.method_handlers_generic_handler("echo", {"Echo": handler})
    server.add_generic_rpc_handlers((service,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await server.wait_for_termination()
asyncio.run(main())
"""


def answers(
    plan: bytes, count: int, reports: int, rng: np.random.Generator, query: BitQuery
) -> Iterator[bytes]:
    """Answers with fresh ids to one round."""
    for _ in range(count):
        ids = np.frombuffer(rng.bytes(16 * reports), dtype=np.uint8).reshape(reports, 16)
        parts = rng.integers(0, len(query.thresholds), reports)
        batch = Batch(ids, {"reports": rng.random(reports) < 0.5, "parts": parts})
        packed = write_batch(batch, query=query, plan=plan, round_=0)
        yield serialise(wire.Answer(version=VERSION, batch=packed))


@dataclass
class Side:
    """What a service took in every turn, by the clock and of the processor."""

    process: int
    seconds: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)

    def turn(self, work: Callable[[], Any]) -> None:
        before, started = self._spent(), time.perf_counter()
        work()
        self.seconds.append(time.perf_counter() - started)
        self.processor.append(self._spent() - before)

    def _spent(self) -> float:
        times = psutil.Process(self.process).cpu_times()
        return float(times.user + times.system)


class Sides:
    """An echo service, and a server on its database with an open campaign of one round."""

    def __init__(self, folder: Path, url: str) -> None:
        self.echo_process = subprocess.Popen(
            [sys.executable, "-c", ECHO], stdout=subprocess.PIPE, text=True
        )
        assert self.echo_process.stdout is not None
        self.echo_channel = grpc.insecure_channel(
            f"127.0.0.1:{int(self.echo_process.stdout.readline())}"
        )
        self.plan = plan_now(changed(PLAN, variant="one-shot", expected_records=1_000_000_000))
        self.place = Place(folder, url)
        campaign, token = self.place.campaign(self.plan), self.place.enrol("owner")
        self.server = self.place.serve("--rate", "1e9", "--byte-rate", "1e12", insecure=True)
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.metadata = ((CAMPAIGN, campaign), (AUTHORIZATION, f"Bearer {token}"))
        (asked,) = eventually(lambda: self.place.store.queries(campaign))
        found, _ = read_query(asked, plan=self.plan, plan_digest=digest(self.plan.to_bytes()))
        assert isinstance(found, BitQuery)
        self.query = found

    def echo(self, messages: list[bytes]) -> None:
        call = self.echo_channel.stream_stream("/echo/Echo")
        assert sum(1 for _ in call(iter(messages))) == len(messages)

    def ingest(self, messages: Iterable[bytes], reports: int) -> None:
        call = self.channel.stream_unary(
            CALLS["Submit"].path,
            request_serializer=None,
            response_deserializer=wire.Receipt.FromString,
        )
        receipt = call(iter(messages), metadata=self.metadata)
        assert (receipt.code, receipt.accepted) == (wire.Code.OK, reports), wire.Code.Name(
            receipt.code
        )

    def close(self) -> None:
        self.echo_process.kill()
        self.echo_process.wait()
        self.place.close()


def measure(
    name: str, sides: Sides, sizes: list[int], turns: int, rng: np.random.Generator
) -> Iterator[dict[str, Any]]:
    """A row for each size of message. The first turn only warms up."""
    plan = digest(sides.plan.to_bytes())
    for reports in sizes:
        count = SIZES[reports]
        echo, ours = Side(sides.echo_process.pid), Side(sides.server.process.pid)
        for _ in range(turns + 1):
            messages = list(answers(plan, count, reports, rng, sides.query))
            # The server tidies up when it has nothing to do, which must not slow the echo.
            time.sleep(TIDY_SECONDS)
            echo.turn(lambda messages=messages: sides.echo(messages))
            ours.turn(lambda messages=messages, all=count * reports: sides.ingest(messages, all))
        ratios = [e / s for e, s in zip(echo.seconds[1:], ours.seconds[1:], strict=True)]
        rate = count / median(ours.seconds[1:])
        yield {
            "database": name,
            "reports a message": reports,
            "bytes": len(messages[0]),
            "messages a second": round(rate),
            "reports a second": round(rate * reports),
            "echo, messages a second": round(count / median(echo.seconds[1:])),
            "of echo": round(median(ratios), 2),
            "from": round(min(ratios), 2),
            "to": round(max(ratios), 2),
            "processor, in echoes": round(sum(ours.processor[1:]) / sum(echo.processor[1:]), 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--postgres", action="store_true", help="measure PostgreSQL beside SQLite")
    parser.add_argument(
        "--sizes",
        type=int,
        nargs="+",
        default=list(SIZES),
        choices=list(SIZES),
        help="reports a message",
    )
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument(
        "--long",
        type=int,
        default=0,
        help="then send so many reports and watch the server's memory",
    )
    parser.add_argument(
        "--folder", type=Path, help="where the SQLite file goes (default: the temporary folder)"
    )
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    rng = np.random.default_rng(1)
    with (
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        postgres(given.folder or Path("/tmp")) if given.postgres else nullcontext("") as url,
    ):
        # One after the other, so that neither database works while the other is measured.
        for name in ("sqlite", "postgres") if given.postgres else ("sqlite",):
            sides = Sides(Path(folder) / name, url if name == "postgres" else "")
            try:
                for row in measure(name, sides, given.sizes, given.turns, rng):
                    rows.append(row)
                    print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                for done in range(
                    0, given.long if name == "sqlite" else 0, max(given.long // 10, 1)
                ):
                    share = given.long // 100_000
                    sides.ingest(
                        answers(digest(sides.plan.to_bytes()), share, 10_000, rng, sides.query),
                        share * 10_000,
                    )
                    print(
                        (
                            f"{done + given.long // 10:,} reports: the server holds "
                            f"{sides.server.megabytes:.0f} MB"
                        ),
                        flush=True,
                    )
            finally:
                sides.close()
    if given.json is not None:
        given.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
