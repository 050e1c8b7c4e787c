"""What floods cost an enrolled owner: the time of its calls and the memory of the server.

Both are measured with and without the floods.

Run with the project's environment: `python benchmarks/service/floods.py [--seconds 8]`. A server
process with TLS; this process asks for the query and hands in one report in turn, a hundred times a
second at most; another process floods. All on this machine, on loopback only, and for so many
seconds each:

- connections: 400 TLS connections without a token, opened again when they are closed;
- resets: streams without a token, opened and given up at once, 7,000 a second on twenty
  connections;
- messages: 128 streams of sixteen owners at a time, each with one message of 4 MB;
- unfinished: the same with a message of the largest size that is accepted, without its last byte.
"""

import argparse
import contextlib
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles

sys.path.insert(0, str(Path(__file__).parents[2]))

from confide.client.transport.grpc_client import Aggregator
from confide.client.transport.retry import Patience
from confide.protocol.plan import digest
from confide.protocol.wire.service import AUTHORIZATION, CALLS, CAMPAIGN, LARGEST_PIECE
from tests.support.owners.answers import answer, bit_batch
from tests.support.owners.hostile import Raw
from tests.support.servers.servers import Place, Running, eventually, plan_now

CONNECTIONS, STREAMS, EACH = 400, 128, 8
RESETS, RESET_CONNECTIONS = 7_000, 20
FLOODS = "none", "connections", "resets", "messages", "unfinished"
Made = Callable[[], Raw]


def connections(made: Made, campaign: str, tokens: list[str], until: float) -> None:
    held = list[Raw]()
    while time.monotonic() < until:
        if len(held) < CONNECTIONS:
            with contextlib.suppress(OSError):
                held.append(made())
        else:
            for one in held[:]:
                with contextlib.suppress(OSError):
                    if one.gone():
                        held.remove(one)
            time.sleep(0.1)


def resets(made: Made, campaign: str, tokens: list[str], until: float) -> None:
    held = [made() for _ in range(RESET_CONNECTIONS)]
    while time.monotonic() < until:
        began = time.monotonic()
        for place, one in enumerate(held):
            try:
                one.socket.sendall(
                    b"".join(
                        one.left(CALLS["PollQuery"].path) for _ in range(RESETS // 100 // len(held))
                    )
                )
                list(one.heard(1e-6))
            except OSError:
                held[place] = made()
        time.sleep(max(0.0, began + 0.01 - time.monotonic()))


def messages(
    made: Made, campaign: str, tokens: list[str], until: float, size: int = 4 << 20, rest: int = 0
) -> None:
    while time.monotonic() < until:
        held = [made() for _ in range(STREAMS)]
        for number, one in enumerate(held):
            metadata = (CAMPAIGN, campaign), (AUTHORIZATION, f"Bearer {tokens[number // EACH]}")
            one.socket.sendall(one.opened(CALLS["Submit"].path, *metadata))
        over = min(until, time.monotonic() + 2)
        while time.monotonic() < over:
            for one in held:
                with contextlib.suppress(OSError):
                    one.push(size, rest=rest)
        for one in held:
            one.socket.close()


def unfinished(made: Made, campaign: str, tokens: list[str], until: float) -> None:
    messages(made, campaign, tokens, until, size=LARGEST_PIECE, rest=1)


def flood(
    kind: str,
    port: int,
    authority: Path,
    campaign: str,
    tokens: list[str],
    seconds: float,
    began: Event,
) -> None:
    """The other process."""
    began.set()
    work = {
        "connections": connections,
        "resets": resets,
        "messages": messages,
        "unfinished": unfinished,
    }[kind]
    work(lambda: Raw(port, authority), campaign, tokens, time.monotonic() + seconds)


def calls(server: Running, campaign: str, token: str, report: bytes, seconds: float) -> list[float]:
    """The seconds that each call of an owner takes, tries that failed included."""
    took, until = list[float](), time.monotonic() + seconds
    remote = Aggregator(server.access(token), campaign, patience=Patience(30.0, longest_pause=0.1))
    while time.monotonic() < until:
        for call in (remote.query, lambda: remote.submit([report], ask=lambda: None)):
            began = time.monotonic()
            call()
            took.append(time.monotonic() - began)
            time.sleep(0.01)
    remote.close()
    return took


def peak(server: Running, over: threading.Event, found: list[float]) -> None:
    while not over.wait(0.02):
        found.append(server.megabytes)


def measure(kind: str, seconds: float) -> None:
    """One flood on a fresh server."""
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(Place(Path(folder))) as place,
    ):
        plan = plan_now(variant="one-shot")
        campaign, honest, tokens = (
            place.campaign(plan),
            place.enrol("honest"),
            [place.enrol(str(i)) for i in range(16)],
        )
        server, authority = place.serve(), place.keys / "ca.pem"
        eventually(lambda: place.store.rounds(campaign))
        report = answer(bit_batch(1), plan=digest(plan.to_bytes()))
        calls(server, campaign, honest, report, 1.0)
        over, memory = threading.Event(), list[float]()
        threading.Thread(target=peak, args=(server, over, memory)).start()
        spawning = multiprocessing.get_context("spawn")
        began = spawning.Event()
        arguments = (kind, server.port, authority, campaign, tokens, seconds, began)
        other = spawning.Process(target=flood, args=arguments)
        if kind != "none":
            other.start()
            assert began.wait(60)
        took = sorted(calls(server, campaign, honest, report, seconds))
        if kind != "none":
            other.join(30)
            other.kill()
        over.set()
        cut = quantiles(took, n=20, method="inclusive")
        print(
            f"{kind:12} calls {len(took):4}  median {1e3 * took[len(took) // 2]:.1f} ms  p95 "
            f"{1e3 * cut[-1]:.1f} ms  longest {1e3 * took[-1]:.0f} ms  server's memory "
            f"{max(memory):.0f} MB",
            flush=True,
        )


def main() -> None:
    """Print a line a flood."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=8.0)
    seconds = parser.parse_args().seconds
    for kind in FLOODS:
        measure(kind, seconds)


if __name__ == "__main__":
    main()
