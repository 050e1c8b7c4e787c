"""Speed as ratios to the operating system, to other packages and to plain numpy, all measured in
this run.

The two sides of a ratio take turns, so that both meet the same load. A ratio is that of the minima;
beside it stands the median of the ratios of the turns. Nothing here passes or fails: a goal that is
not met says so in the table.
"""

import argparse
import contextlib
import json
import math
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich import box
from rich.console import Console
from rich.table import Table

from confide.aggregator.procedures import bits, labels
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.aggregator.procedures.sweep import noise_aware_threshold
from confide.protocol.channels.bit import Bit
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import true_scores
from confide.simulation.driver import BitUsers, LabelUsers, drive

Array = NDArray[Any]
Side = Callable[[], float]

HERE = Path(__file__).resolve().parent
ALPHA = DELTA = 0.1
EPSILON, K = 1.0, 10
LABELS = 10_000_000
RECORDS, CLASSES = 100_000, 100
REPORTS = 1_000_000
STEPS = 20
TURN = 0.02
MEMORY = 2_000_000_000
# Softmax of independent normal logits with this spread: with ten labels the model is right two
# times in three.
SPREAD = 3.0


@dataclass(frozen=True)
class Row:
    """One line of the table. The seconds of both sides are minima, a label's where the sides differ
    in size."""

    what: str
    against: str
    ours: float | None = None
    peer: float | None = None
    ratio: float | None = None
    median: float | None = None
    bytes: int | None = None
    goal: str | None = None
    met: bool | None = None


def timed(work: Callable[[], object]) -> Side:
    """Seconds of the work, the least of several where one takes less than TURN: peers.py does the
    same."""

    def run() -> float:
        first, least = time.perf_counter(), math.inf
        while (started := time.perf_counter()) - first < TURN:
            work()
            least = min(least, time.perf_counter() - started)
        return least

    return run


def take_turns(turns: int, sides: dict[str, Side]) -> dict[str, list[float]]:
    """The seconds of every side in every turn, after one that only warms up; a side that fails
    (infinity) is left out."""
    seconds: dict[str, list[float]] = {
        name: [] for name, side in sides.items() if side() < math.inf
    }
    for _ in range(turns):
        for name in seconds:
            seconds[name].append(sides[name]())
    return {name: values for name, values in seconds.items() if max(values) < math.inf}


def times_faster(
    what: str, against: str, ours: list[float], peer: list[float], at_least: float | None = None
) -> Row:
    ratio = min(peer) / min(ours)
    median = statistics.median(b / a for a, b in zip(ours, peer, strict=True))
    goal, met = (
        (None, None) if at_least is None else (f">= {at_least:g} times faster", ratio >= at_least)
    )
    return Row(what, against, min(ours), min(peer), ratio, median, goal=goal, met=met)


def times_as_long(
    what: str, against: str, ours: list[float], peer: list[float], at_most: float
) -> Row:
    ratio = min(ours) / min(peer)
    median = statistics.median(a / b for a, b in zip(ours, peer, strict=True))
    goal, met = f"<= {at_most:g} times as long", ratio <= at_most
    return Row(what, against, min(ours), min(peer), ratio, median, goal=goal, met=met)


class Peers:
    """The process that runs the other packages; `remarks` name what could not be measured, and
    why."""

    def __init__(self, home: Path, data: Path, scratch: Path) -> None:
        self.remarks: dict[str, str] = {}
        self.versions: dict[str, str] = {}
        self.ways: list[str] = []
        self.thresholds: dict[str, float | None] = {}
        self._process: subprocess.Popen[str] | None = None
        self._errors = scratch / "peers.log"
        try:
            install(home)
            with self._errors.open("w") as log:
                self._process = subprocess.Popen(
                    [home / "bin" / "python", HERE / "peers.py", data],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                )
            hello = self._answer()
        except (OSError, subprocess.CalledProcessError, EOFError) as error:
            self.remarks["every package"] = f"not measured, {error}"
        else:
            self.ways, self.versions = hello["ways"], hello["versions"]
            self.remarks = {
                package: f"not measured, {reason}" for package, reason in hello["missing"].items()
            }

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            said = self._errors.read_text().strip().splitlines() or ["it said nothing"]
            raise EOFError(f"the peers' process ended: {said[-1]}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _ask(self, way: str) -> float:
        assert self._process is not None
        assert self._process.stdin is not None
        try:
            print(way, file=self._process.stdin, flush=True)
            answer = self._answer()
        except (OSError, EOFError) as error:
            answer = {"error": str(error)}
        if "error" in answer:
            self.remarks[way] = f"not measured, {answer['error']}"
            return math.inf
        self.thresholds[way] = answer["threshold"]
        return float(answer["seconds"])

    def sides(self, task: str) -> dict[str, Side]:
        return {way: partial(self._ask, way) for way in self.ways if way.split()[0] == task}

    def close(self) -> None:
        if self._process is not None:
            assert self._process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            self._process.wait()


def install(home: Path) -> None:
    """Make the peers' environment where there is none. An existing one is used as it is."""
    python = home / "bin" / "python"
    if python.exists():
        return
    print(f"installing the packages of peers.txt into {home} (once)", file=sys.stderr)
    wanted = [
        line
        for line in (HERE / "peers.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    alone = [line for line in wanted if line.startswith("torchcp==")]
    pip: list[str | Path] = [
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    try:
        subprocess.run([sys.executable, "-m", "venv", home], check=True, stdout=sys.stderr)
        subprocess.run(
            [*pip, *(line for line in wanted if line not in alone)], check=True, stdout=sys.stderr
        )
        subprocess.run([*pip, "--no-deps", *alone], check=True, stdout=sys.stderr)
    except BaseException:
        shutil.rmtree(home, ignore_errors=True)
        raise


def softmax(n: int, k: int, dtype: type, rng: np.random.Generator) -> tuple[Array, Array]:
    """Probabilities of a calibrated model and labels drawn from them, in slices so that memory
    stays that of the result."""
    probs: Array = np.empty((n, k), dtype=dtype)
    truth: Array = np.empty(n, dtype=np.int64)
    for start in range(0, n, 10_000):
        part = np.exp(rng.normal(0, SPREAD, (min(10_000, n - start), k)))
        part /= part.sum(axis=1, keepdims=True)
        truth[start : start + len(part)] = np.minimum(
            (part.cumsum(axis=1) < rng.random((len(part), 1))).sum(axis=1), k - 1
        )
        probs[start : start + len(part)] = part
    return probs, truth


def hps_scores(n: int) -> tuple[Array, Array]:
    """HPS scores of every label, in place, and the true labels."""
    probs, truth = softmax(n, K, np.float64, np.random.default_rng(0))
    np.subtract(1, probs, out=probs)
    return probs, truth


def randomising(turns: int, peers: Peers) -> list[Row]:
    channel = KaryRR(EPSILON, k=K)
    truth = np.random.default_rng(0).integers(0, K, LABELS)
    what = f"k-RR of {LABELS:.0e} labels".replace("e+0", "e")
    sides = {
        "ours": timed(lambda: channel.randomize(truth, os_entropy)),
        "os": timed(lambda: os.urandom(2 * LABELS)),
    }
    seconds = take_turns(turns, sides | peers.sides("k-rr"))
    rows = [times_as_long(what, "os.urandom, 2 bytes a label", seconds["ours"], seconds["os"], 1.3)]
    for way in seconds.keys() - sides.keys():
        ours, peer = (
            [s / count for s in seconds[side]] for side, count in (("ours", LABELS), (way, RECORDS))
        )
        rows.append(
            times_faster(
                "k-RR of one label",
                f"pure-ldp {peers.versions['pure-ldp']}, one at a time",
                ours,
                peer,
                40,
            )
        )
    return rows


def calibrating(turns: int, peers: Peers, probs: Array, truth: Array) -> list[Row]:
    rows = []
    for task, score, name, goal in (("aps", "aps", "APS", 8.0), ("lac", "hps", "LAC/HPS", 3.0)):
        found: list[float] = []

        def calibrate(score: str = score, found: list[float] = found) -> None:
            found.append(
                split_conformal(true_scores(SCORES[score], probs, truth), alpha=ALPHA).threshold
            )

        seconds = take_turns(turns, {"ours": timed(calibrate)} | peers.sides(task))
        what = f"{name} calibration, {RECORDS} x {CLASSES}"
        ours = seconds.pop("ours")
        fastest: dict[str, str] = {}
        for way in sorted(seconds, key=lambda way: min(seconds[way]), reverse=True):
            fastest[way.split()[1]] = way
        ranked = sorted(fastest.values(), key=lambda way: min(seconds[way]))
        for place, way in enumerate(ranked):
            _, package, how = way.split()
            against = f"{package} {peers.versions[package]}, {how}" + (
                " (the fastest)" if place == 0 else ""
            )
            rows.append(
                times_faster(what, against, ours, seconds[way], goal if place == 0 else None)
            )
            # MAPIE's APS is randomised, so its threshold is another one.
            threshold = peers.thresholds[way]
            if (
                (task, package) != ("aps", "MAPIE")
                and threshold is not None
                and abs(threshold - found[-1]) > 1e-5
            ):
                peers.remarks[way] = f"another threshold, {threshold:.6f}, ours {found[-1]:.6f}"
        if not ranked:
            rows.append(Row(what, "nothing measured", min(ours)))
    return rows


def bisection(
    scores: Array, reports: Array, *, beta: float, target: float, within: float = 0.0
) -> float:
    """NACP by halving [0, 1] (Penso et al. 2025), F^c = (F^n - beta F^r) / (1 - beta), as one
    writes it from the paper."""
    low, high = 0.0, 1.0
    for _ in range(STEPS):
        q = (low + high) / 2
        estimate = (np.mean(reports <= q) - beta * np.mean(scores <= q)) / (1 - beta)
        if estimate < target:
            low = q
        else:
            high = q
            if estimate <= target + within:
                break
    return high


def sweeping(turns: int) -> list[Row]:
    scores, truth = hps_scores(REPORTS)
    channel = KaryRR(EPSILON, k=K)
    supported = channel.supported(channel.randomize(truth, os_entropy), scores)
    beta, delta_l = (
        float(K * channel.spill),
        labels.published_delta(channel=channel, n=REPORTS, delta=DELTA),
    )
    goal = REPORTS * float(channel.hit - channel.spill) * (1 - ALPHA)
    sides = {
        "ours": lambda: noise_aware_threshold(
            scores, supported, goal=goal, spill=float(channel.spill)
        ),
        "halving": lambda: bisection(scores, supported, beta=beta, target=1 - ALPHA),
        "stopping": lambda: bisection(
            scores, supported, beta=beta, target=1 - ALPHA, within=delta_l
        ),
    }
    seconds = take_turns(turns, {name: timed(side) for name, side in sides.items()})
    what = f"exact NACP sweep, {REPORTS} x {K}"
    return [
        times_faster(
            what, f"numpy bisection, {STEPS} steps", seconds["ours"], seconds["halving"], 3
        ),
        times_faster(
            what, "numpy bisection, stops within Delta", seconds["ours"], seconds["stopping"]
        ),
    ]


def alone(task: str) -> dict[str, float]:
    """Seconds and peak memory of one task; run in a process of its own, whose peak includes the
    data."""
    if task == "bits":
        probs, truth = softmax(REPORTS, K, np.float64, np.random.default_rng(0))
        users = BitUsers(true_scores(SCORES["hps"], probs, truth), os_entropy)
        del probs
        work = timed(
            lambda: drive(
                bits.certified(channel=Bit(EPSILON), alpha=ALPHA, delta=DELTA, n=REPORTS), users
            )
        )
    else:
        scores, truth = hps_scores(REPORTS)
        channel = KaryRR(EPSILON, k=K)
        procedure = labels.published if task == "sweep" else labels.certified
        work = timed(
            lambda: drive(
                procedure(channel=channel, alpha=ALPHA, delta=DELTA),
                LabelUsers(scores, truth, os_entropy),
            )
        )
    seconds = work()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    return {"seconds": seconds, "bytes": peak}


def in_processes() -> list[Row]:
    """Before this process grows: on Linux a child's peak starts at that of its parent."""
    rows = []
    for task, what, most in (
        ("sweep", f"LDP-CP-L by the sweep, {REPORTS} x {K}", MEMORY),
        ("labels", f"certified labels, {REPORTS} x {K}", None),
        ("bits", f"certified bits, {REPORTS} users", None),
    ):
        ran = subprocess.run(
            [sys.executable, __file__, "--alone", task], capture_output=True, text=True
        )
        if ran.returncode:
            rows.append(Row(what, f"failed: {ran.stderr.strip().splitlines()[-1]}"))
            continue
        result = json.loads(ran.stdout)
        goal, met = (
            (None, None)
            if most is None
            else (f"peak <= {most / 1e9:g} GB", result["bytes"] <= most)
        )
        rows.append(Row(what, "-", result["seconds"], bytes=result["bytes"], goal=goal, met=met))
    return rows


def shown(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def table(rows: list[Row]) -> Table:
    made = Table(box=box.SIMPLE_HEAD)
    for heading in ("what", "ours", "peer", "against", "ratio", "median", "goal", "met"):
        right = heading in ("ours", "peer", "ratio", "median")
        made.add_column(heading, justify="right" if right else "left", no_wrap=heading != "against")
    for row in rows:
        peak = "" if row.bytes is None else f", {row.bytes / 1e9:.2f} GB"
        ratios = ("-" if value is None else f"{value:.2f}" for value in (row.ratio, row.median))
        met = "-" if row.met is None else "yes" if row.met else "no"
        made.add_row(
            row.what,
            shown(row.ours) + peak,
            shown(row.peer),
            row.against,
            *ratios,
            row.goal or "-",
            met,
        )
    return made


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="PATH",
        default=HERE / ".peers",
        help=(
            "environment of the other packages, made from peers.txt where there is none (default: "
            ".peers beside this file)"
        ),
    )
    parser.add_argument(
        "--turns", type=int, metavar="N", default=7, help="times each side is measured (default: 7)"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON too")
    parser.add_argument("--alone", choices=("sweep", "labels", "bits"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peers.exists() and not (given.peers / "bin" / "python").exists():
        parser.error(
            f"--peers {given.peers}: an environment is needed, or a path where there is nothing yet"
        )
    if given.turns < 1:
        parser.error(f"--turns is {given.turns}; at least 1 is needed")
    if given.json is not None and (given.json.is_dir() or not given.json.resolve().parent.is_dir()):
        parser.error(f"--json {given.json}: a file in an existing directory is needed")
    return given


def main() -> None:
    given = arguments()
    if given.alone:
        print(json.dumps(alone(given.alone)))
        return
    load = os.getloadavg()[0]
    with Console(stderr=True).status("memory") as status, tempfile.TemporaryDirectory() as scratch:
        last = in_processes()
        probs, truth = softmax(RECORDS, CLASSES, np.float32, np.random.default_rng(0))
        data = Path(scratch) / "data.npz"
        np.savez(data, probs=probs, labels=truth)
        status.update("starting the other packages")
        peers = Peers(given.peers, data, Path(scratch))
        try:
            status.update("randomising")
            rows = randomising(given.turns, peers)
            status.update("calibrating")
            rows += calibrating(given.turns, peers, probs, truth)
        finally:
            peers.close()
        status.update("sweeping")
        rows += sweeping(given.turns) + last
    out = Console() if sys.stdout.isatty() else Console(width=160)
    out.print(table(rows))
    out.print(
        f"{os.cpu_count()} cores, load {load:.1f} at the start, {given.turns} turns, Python "
        f"{platform.python_version()}, "
        f"numpy {np.__version__}. Times and ratio: of the minima; median: of the ratios turn by "
        "turn.",
        highlight=False,
    )
    for what, remark in peers.remarks.items():
        out.print(f"{what}: {remark}", highlight=False, markup=False)
    if given.json is not None:
        machine = {
            "cores": os.cpu_count(),
            "load": load,
            "python": platform.python_version(),
            "numpy": np.__version__,
        }
        result = {
            "machine": machine,
            "turns": given.turns,
            "peers": peers.versions,
            "remarks": peers.remarks,
            "rows": [asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
