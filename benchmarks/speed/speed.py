"""Speed as ratios to the operating system, to other packages and to plain numpy.

All sides are measured in this run.

The two sides of a ratio take turns, so that both meet the same load. A ratio is that of the minima;
beside it stands the median of the ratios of the turns. Nothing here passes or fails: a goal that is
not met says so in the table.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.speed import single_task
from benchmarks.speed.peer_process import HOME, Peers, against_peers
from benchmarks.speed.single_task import ALPHA, DELTA, EPSILON, REPORTS, K
from benchmarks.speed.turns import Row, table, take_turns, timed, times_as_long, times_faster
from confide.aggregator.procedures.labels import procedure as labels
from confide.aggregator.procedures.labels.sweep import noise_aware_threshold
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.channels.randomized_response import KaryRR
from confide.protocol.exact.sampling import os_entropy
from confide.protocol.methods.labels.query import LabelTally
from confide.protocol.prediction.predictor import Predictor
from confide.protocol.scores.registry import SCORES
from confide.protocol.scores.scoring import true_scores
from confide.simulation.driver import drive

Array = NDArray[Any]

LABELS = 10_000_000
RECORDS, CLASSES = 100_000, 100
STEPS = 20


def randomising(turns: int, peers: Peers) -> list[Row]:
    channel = KaryRR(EPSILON, k=K)
    truth = np.random.default_rng(0).integers(0, K, LABELS)
    what = f"k-RR of {LABELS:.0e} labels".replace("e+0", "e")
    sides = {
        "ours": timed(lambda: channel.randomize(truth, os_entropy)),
        "os": timed(lambda: os.urandom(2 * LABELS)),
    }
    seconds = take_turns(turns, sides | peers.sides("k-rr"))
    rows = [
        times_as_long(
            what,
            "os.urandom, 2 bytes a label",
            ours=seconds["ours"],
            peer=seconds["os"],
            at_most=1.3,
        )
    ]
    for way in seconds.keys() - sides.keys():
        ours, peer = (
            [s / count for s in seconds[side]] for side, count in (("ours", LABELS), (way, RECORDS))
        )
        rows.append(
            times_faster(
                "k-RR of one label",
                f"pure-ldp {peers.versions['pure-ldp']}, one at a time",
                ours=ours,
                peer=peer,
                at_least=40,
            )
        )
    return rows


def calibrating(turns: int, peers: Peers, *, probs: Array, truth: Array) -> list[Row]:
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
        made, ranked = against_peers(what, seconds, peers, ours=ours, goal=goal)
        rows += made
        for way in ranked:
            package = way.split()[1]
            # MAPIE's APS is randomised, so its threshold is another one.
            threshold = peers.results[way]
            if (
                (task, package) != ("aps", "MAPIE")
                and threshold is not None
                and abs(threshold - found[-1]) > 1e-5
            ):
                peers.remarks[way] = f"another threshold, {threshold:.6f}, ours {found[-1]:.6f}"
    return rows


def plain_sets(probs: Array, threshold: float) -> Array:
    """APS sets as anybody would write them with numpy: sort, add up, put back."""
    order = np.argsort(-probs, axis=1)
    inside = np.cumsum(np.take_along_axis(probs, order, axis=1), axis=1) <= threshold
    sets = np.empty_like(inside)
    np.put_along_axis(sets, order, inside, axis=1)
    return sets


def predicting(turns: int, peers: Peers, *, probs: Array, truth: Array) -> list[Row]:
    """Sets from a threshold, which every side has calibrated on the same records before."""
    score = SCORES["aps"]
    predictor = Predictor(
        score, split_conformal(true_scores(score, probs, truth), alpha=ALPHA).threshold
    )
    here = {
        "ours": timed(lambda: predictor.predict_set(probs)),
        "numpy": timed(lambda: plain_sets(probs, predictor.threshold)),
    }
    seconds = take_turns(turns, here | peers.sides("sets"))
    ours, plain = seconds.pop("ours"), seconds.pop("numpy")
    what = f"APS sets, {RECORDS} x {CLASSES}"
    rows, ranked = against_peers(what, seconds, peers, ours=ours, goal=4.0)
    # Guards against a slower prediction, also where no other package can be had.
    rows.append(
        times_faster(what, "plain numpy: sort, add, put back", ours=ours, peer=plain, at_least=1)
    )
    size = float(predictor.sizes(probs).mean())
    for way in ranked:
        found = peers.results[way]
        # puncc adds the label after the last that fits; MAPIE's APS is randomised.
        if "torchcp" in way and found is not None and abs(found - size) > 1e-3:
            peers.remarks[way] = f"another mean size, {found:.4f}, ours {size:.4f}"
    return rows


def bisection(
    scores: Array, reports: Array, *, beta: float, target: float, within: float = 0.0
) -> float:
    """NACP by halving [0, 1], F^c = (F^n - beta F^r) / (1 - beta), as in Penso et al. 2025."""
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
    scores, truth = single_task.hps_scores(REPORTS)
    channel = KaryRR(EPSILON, k=K)
    reports = channel.randomize(truth, os_entropy)
    supported = channel.supported(reports, scores)
    beta, delta_l = (
        float(K * channel.spill),
        labels.published_delta(channel=channel, n=REPORTS, delta=DELTA),
    )
    goal = REPORTS * float(channel.hit - channel.spill) * (1 - ALPHA)
    sides: dict[str, Callable[[], object]] = {
        "ours": lambda: noise_aware_threshold(
            scores, supported, goal=goal, spill=float(channel.spill)
        ),
        "halving": lambda: bisection(scores, supported, beta=beta, target=1 - ALPHA),
        "stopping": lambda: bisection(
            scores, supported, beta=beta, target=1 - ALPHA, within=delta_l
        ),
    }
    sides["certified"] = lambda: drive(
        labels.certified(channel=channel, alpha=ALPHA, delta=DELTA),
        lambda _: LabelTally(scores, reports),
    )
    seconds = take_turns(turns, {name: timed(side) for name, side in sides.items()})
    what = f"exact NACP sweep, {REPORTS} x {K}"
    return [
        times_faster(
            what,
            f"numpy bisection, {STEPS} steps",
            ours=seconds["ours"],
            peer=seconds["halving"],
            at_least=3,
        ),
        times_faster(
            what,
            "numpy bisection, stops within Delta",
            ours=seconds["ours"],
            peer=seconds["stopping"],
        ),
        times_as_long(
            f"certified labels, {REPORTS} x {K}",
            "the exact sweep",
            ours=seconds["certified"],
            peer=seconds["ours"],
            at_most=40,
        ),
    ]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--peers",
        type=Path,
        metavar="PATH",
        default=HOME,
        help=(
            "environment of the other packages, made from peers.txt where there is none (default: "
            "benchmarks/.peers)"
        ),
    )
    parser.add_argument(
        "--turns", type=int, metavar="N", default=7, help="times each side is measured (default: 7)"
    )
    parser.add_argument(
        "--only", choices=["predicting"], help="measure prediction sets alone, in a minute"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON too")
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
    load = os.getloadavg()[0]
    every = given.only is None
    with Console(stderr=True).status("memory") as status, tempfile.TemporaryDirectory() as scratch:
        last = single_task.in_processes() if every else []
        rng = np.random.default_rng(0)
        probs, truth = single_task.softmax(RECORDS, CLASSES, dtype=np.float32, rng=rng)
        data = Path(scratch) / "data.npz"
        np.savez(data, probs=probs, labels=truth)
        status.update("starting the other packages")
        peers = Peers(given.peers, data, Path(scratch))
        try:
            rows: list[Row] = []
            if every:
                status.update("randomising")
                rows += randomising(given.turns, peers)
                status.update("calibrating")
                rows += calibrating(given.turns, peers, probs=probs, truth=truth)
            status.update("predicting")
            rows += predicting(given.turns, peers, probs=probs, truth=truth)
        finally:
            peers.close()
        if every:
            status.update("sweeping")
            rows += sweeping(given.turns) + last
    _report(rows, peers, given, load=load)


def _report(rows: list[Row], peers: Peers, given: argparse.Namespace, *, load: float) -> None:
    out = Console() if sys.stdout.isatty() else Console(width=160)
    out.print(table(rows))
    out.print(
        f"{os.cpu_count()} cores, load {load:.1f} at the start, {given.turns} turns, Python "
        f"{platform.python_version()}, numpy {np.__version__}. Times and ratio: of the minima; "
        "median: of the ratios turn by turn.",
        highlight=False,
    )
    for what, remark in peers.remarks.items():
        out.print(f"{what}: {remark}", highlight=False, markup=False)
    if given.json is not None:
        versions = {"python": platform.python_version(), "numpy": np.__version__}
        result = {
            "machine": {"cores": os.cpu_count(), "load": load, **versions},
            "turns": given.turns,
            "peers": peers.versions,
            "remarks": peers.remarks,
            "rows": [asdict(row) for row in rows],
        }
        given.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
