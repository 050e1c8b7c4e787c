import json
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import psutil
import pytest

from confide.__main__ import main
from confide.aggregator.campaigns.admission import Sent
from confide.aggregator.campaigns.driver import run_campaign
from confide.client.simulated import simulated_owner
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.plan import open_plan
from confide.protocol.simulated import RUN_FOLDER, SIMULATION_PUBLIC
from confide.simulation.federation import HOME, stop
from tests.support.commands import run_main
from tests.support.federations import CAMPAIGNS, NODES, RECORDS, SEED, SIZES, command
from tests.support.places import ROOT
from tests.support.processes import marked, members, started

Run = tuple[subprocess.CompletedProcess[str], Path, set[int]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One real Flower simulation of both methods, labels skewed over owners."""
    out, own = tmp_path_factory.mktemp("federation"), tmp_path_factory.mktemp("own")
    more = [
        "--campaigns",
        CAMPAIGNS,
        "--epsilon",
        "4",
        "--privacy-delta",
        "1e-5",
        "--concentration",
        "1",
        "--sizes",
        SIZES,
    ]
    done = subprocess.run(
        command(out, *more),
        cwd=ROOT,
        env=marked(own),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, out, members(own)


def test_a_flower_simulation_ends_in_a_table_and_a_report(run: Run) -> None:
    """Exit code 0, a row a campaign, certificates, plot and page in the folder, and no process
    left."""
    done, out, left = run
    assert done.returncode == 0, done.stderr
    assert "non-private" in done.stdout
    assert done.stdout.count("verified") == 4
    assert done.stdout.count("SIMULATION ONLY") == 4
    calibrations = ("labels-certified", "bits-certified", "central-trusted", "central-owner-noised")
    files = {
        f"{name}{kind}" for name in calibrations for kind in (".json", ".card.json", ".card.html")
    }
    files |= {
        "training-federated-averaging.json",
        "training-weights.npz",
        "central-trusted.auditor.json",
    }
    found = {path.name for path in out.iterdir() if not path.name.startswith("release-")}
    assert found == files | {"set-sizes.svg", "report.html"}
    assert len(list(out.glob("release-*.json"))) == 1
    page = (out / "report.html").read_text()
    assert "labels:certified" in page
    assert "<svg" in page
    assert not left


def test_an_auditor_sees_the_width_and_the_public_does_not(run: Run) -> None:
    """Both cards of a trusted calibration verify; what depends on the records is in the auditor's
    only."""
    cards = {
        kind: read_card(run[1] / f"central-trusted.{kind}.json") for kind in ("card", "auditor")
    }
    assert all(
        finding.holds for card in cards.values() for finding in verify(card, key=SIMULATION_PUBLIC)
    )
    seen = cards["auditor"].diagnostic
    assert 0 <= seen["observed_inflation"] <= seen["width"]
    assert set(seen) - set(cards["card"].diagnostic) == {"observed_inflation", "width"}


def test_a_model_is_trained_over_flower(run: Run) -> None:
    """Owners' DP-SGD, averaged: within the budget, far better than guessing one letter of 26, and
    every round answered."""
    about = json.loads((run[1] / "training-federated-averaging.json").read_text())
    assert about["epsilon"] <= 4.0
    assert about["accuracy"] > 0.3
    assert about["owners"] == [NODES] * 30


@pytest.mark.parametrize("name", ["labels-certified", "bits-certified", "central-owner-noised"])
def test_flower_and_the_in_process_driver_agree(
    run: Run, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the same plan and seed, owners asked directly give the threshold and the counts that came
    out over Flower."""
    row = json.loads((run[1] / f"{name}.json").read_text())
    signed = bytes.fromhex(row["plan"])
    plan, _ = open_plan(signed, trusted={SIMULATION_PUBLIC}, now=datetime.now(UTC))
    monkeypatch.setenv(RUN_FOLDER, str(tmp_path))

    def ask(query: bytes) -> list[Sent]:
        made = partial(
            simulated_owner,
            run=1,
            owners=NODES,
            records=RECORDS,
            sizes=SIZES,
            concentration=1.0,
            replacement=False,
            seed=SEED,
            query=query,
        )
        return [
            Sent(bytes([owner]), made(owner=owner).answer(signed, query)) for owner in range(NODES)
        ]

    outcome = run_campaign(plan, ask)
    assert (row["threshold"], row["n"]) == (outcome.certificate.threshold, outcome.certificate.n)
    # Labels ask everybody; bits may be done before the last stage.
    assert row["n"] == RECORDS or name == "bits-certified"
    assert row["received"] == outcome.received
    assert row["randomness"] == "seeded (simulation only)"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy of what it is built from, and unpacked as an installer
    does."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("confide", "protocol", "client", "aggregator", "simulation"):
        shutil.copytree(
            ROOT / name,
            folder / "source" / name,
            symlinks=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "source")
    build = "import setuptools.build_meta as b; b.build_wheel('..')"
    subprocess.run(
        [sys.executable, "-c", build], cwd=folder / "source", capture_output=True, check=True
    )
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_an_installed_federation_repeats_one_of_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    """From a wheel, in an empty folder, into a folder that is not there: the plans, thresholds,
    counts and cards of the same seed in the checkout, with owners that stay away; only the moments
    of the cards, and so their signatures, differ."""
    more = [
        "--nodes",
        "4",
        "--records",
        "2000",
        "--campaigns",
        "bits:certified central:trusted",
        "--sizes",
        "1 2 3",
        "--dropout",
        "0.3",
    ]
    (tmp_path / "empty").mkdir()
    outs = {ROOT: tmp_path / "out", tmp_path / "empty": tmp_path / "new" / "out"}
    with ExitStack() as stack:
        both = [
            stack.enter_context(
                started(
                    command(out, *more),
                    cwd=place,
                    env=os.environ | {"PYTHONPATH": str(ROOT if place is ROOT else installed)},
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                )
            )
            for place, out in outs.items()
        ]
        for process in both:
            _, errors = process.communicate(timeout=300)
            assert process.returncode == 0, errors
    assert not any((tmp_path / "empty").iterdir())
    for name in ("bits-certified", "central-trusted"):
        one, other = (json.loads((out / f"{name}.json").read_text()) for out in outs.values())
        assert one == other
        # Some owners stay away, and who does is decided by the seed.
        assert sum(one["received"].values()) % 4 > 0
        cards = [read_card(out / f"{name}.card.json").content() for out in outs.values()]
        for card in cards:
            del card["provenance"]["issued"]
        assert cards[0] == cards[1]


def test_a_failing_server_app_is_a_failing_command(tmp_path: Path) -> None:
    """A run that raises ends in exit code 1 with the cause, where `flwr run` says 0."""
    done = subprocess.run(
        command(tmp_path, "--campaigns", "bits:certified", "--dropout", "0.99"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert "finished:failed" in done.stderr
    assert "the plan asks for at least 100" in done.stderr


def test_interrupted_it_stops_what_it_started(tmp_path: Path) -> None:
    """Ctrl-C or a termination in the middle: nothing of Flower keeps running, and no folder
    stays."""
    own = {how: tmp_path / how.name for how in (signal.SIGINT, signal.SIGTERM)}
    with ExitStack() as stack:
        both = {
            how: stack.enter_context(
                started(
                    command(tmp_path / f"{how.name}-out"),
                    cwd=ROOT,
                    env=marked(folder),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )
            for how, folder in own.items()
        }
        for how, process in both.items():
            wait_until(partial(has_nodes, own[how], process), seconds=120)
            assert process.poll() is None
            process.send_signal(how)
        assert [one.wait(timeout=60) for one in both.values()] == [130, 143]
    for folder in own.values():
        wait_until(partial(nobody_is_left, folder), seconds=30)
        assert not any(folder.glob("confide-flwr-*"))


def nobody_is_left(folder: Path) -> bool:
    return not members(folder)


def has_nodes(folder: Path, process: subprocess.Popen[str]) -> bool:
    """Whether nodes of a federation run: workers of Ray, the last of its processes to start."""
    return process.poll() is not None or any(
        name.startswith("ray::") for name in map(command_line, members(folder))
    )


def command_line(pid: int) -> str:
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def wait_until(holds: Callable[[], bool], *, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.2)


def test_what_hangs_does_not_outlive_its_federation(tmp_path: Path) -> None:
    """Neither in a session of its own, nor deaf to being told, nor when what started it is gone."""
    deaf = "setsid sh -c \"trap '' TERM; echo; exec sleep 600\" & echo $!"
    members = []
    for more in ("", "; wait"):
        command = ["sh", "-c", f"{deaf}{more}"]
        leader = subprocess.Popen(
            command, env=os.environ | {HOME: str(tmp_path)}, stdout=subprocess.PIPE, text=True
        )
        assert leader.stdout is not None
        with leader.stdout as said:
            members.append(Path("/proc", (said.readline() + said.readline()).strip()))
        if not more:
            assert leader.wait(timeout=30) == 0
    bystander = subprocess.Popen(["sleep", "600"], env=os.environ | {HOME: str(tmp_path / "other")})
    try:
        assert all(member.exists() for member in members)
        stop(leader, tmp_path, grace=2)
        assert not any(member.exists() for member in members)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--nodes", "0"],
        ["--dropout", "1"],
        ["--records", "16000"],
        ["--campaigns", "votes:certified"],
        ["--epsilon", "0"],
        ["--out", "/proc/nowhere"],
        ["--concentration", "-1"],
        ["--sizes", "1 0"],
        ["--failure-probability", "0"],
        ["--failure-probability", "0.1", "--campaigns", "central:trusted"],
        ["--bins", "64"],
        ["--delta", "0.1"],
    ],
)
def test_impossible_federations_are_refused_at_once(arguments: list[str], tmp_path: Path) -> None:
    """Exit code 2 and one line, before anything starts."""
    done = run_main(main, *command(tmp_path, *arguments)[3:])
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert any(word in done.stderr for word in ("accepted", "must", "belongs to", "is now"))
