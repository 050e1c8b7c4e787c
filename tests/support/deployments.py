"""A Flower deployment over TLS, started with the scripts of the documents."""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from confide.client.home import Home
from confide.protocol.simulated.embedded import owned, predictions
from confide.protocol.simulated.settings import EMBEDDED_MODEL
from confide.simulation.federation.harness import HOME, QUIET, free_port, stop
from tests.support.places import ROOT

TOOLS = Path(sys.executable).parent
SCRIPTS = ROOT / "docs" / "deployment"
# A SuperNode starts a process for every message, so a node more costs seconds a round.
NODES, RECORDS = 2, 3_000


# What a new clone does not hold. Flower looks at every file of a project to bundle it, and an
# environment has tens of thousands.
MADE = (".venv", ".git", ".*_cache", ".hypothesis", "__pycache__", "*.egg-info", "out", ".peers")


def copy_checkout(folder: Path) -> Path:
    """Copy the checkout, as a new clone has it, into a folder that is not there yet."""
    ignored = shutil.ignore_patterns(*MADE)
    return Path(shutil.copytree(ROOT, folder, symlinks=True, ignore=ignored))


def write_owner(folder: Path, number: int, share: Any, aggregator: bytes) -> None:
    """An owner's folder and records."""
    home = Home(folder / f"home{number}")
    home.create()
    policy = home.policy_file.read_text()
    for old, new in (
        ("aggregators = []", f'aggregators = ["{aggregator.hex()}"]'),
        ("\nmodels = []", f'\nmodels = ["{EMBEDDED_MODEL.hex()}"]'),
        (
            'methods = ["bits"]',
            'methods = ["bits", "labels", "central", "training", "full-data"]',
        ),
        ("exact_counts_may_leave = false", "exact_counts_may_leave = true"),
        ("trained_models = false", "trained_models = true"),
        ("probabilities_may_leave = false", "probabilities_may_leave = true"),
        ("epsilon_per_record = 4.0", "epsilon_per_record = 10.0"),
    ):
        policy = policy.replace(old, new)
    home.policy_file.write_text(policy)
    probs, labels = predictions()
    held = {"probs": probs[share], "features": owned()[0][share], "labels": labels[share]}
    np.savez(folder / f"records{number}.npz", ids=share, **held)


def environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return (
        os.environ | QUIET | {HOME: str(home), "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}"}
    )


def flwr(folder: Path, *arguments: str) -> dict[str, Any]:
    done = subprocess.run(
        ["flwr", *arguments, "--format", "json"],
        env=environment(folder / "cli"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found: dict[str, Any] = json.loads(done.stdout[done.stdout.index("{") :])
    assert found["success"], done.stdout + done.stderr
    return found


Ready = Callable[[], bool]
Running = list[tuple[subprocess.Popen[bytes], Path]]


@contextmanager
def together() -> Iterator[Running]:
    """Processes with their folders of Flower, which are all stopped at once after the block."""
    running: Running = []
    try:
        yield running
    finally:
        with ThreadPoolExecutor(max(1, len(running))) as pool:
            list(pool.map(lambda one: stop(*one), running))


def start(
    running: Running, folder: Path, name: str, command: list[str], env: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a process that logs into the folder."""
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    running.append((process, Path(env[HOME])))
    return process


def start_node(
    running: Running, folder: Path, number: int, **settings: str
) -> tuple[subprocess.Popen[bytes], Ready]:
    """Register an owner's SuperNode and start it; with it, what tells when it is ready.

    `settings` are variables of its environment, such as CONFIDE_ENGINE.
    """
    home = folder / f"home{number}"
    flwr(folder, "supernode", "register", str(home / "node.pub"), "own")
    command = [
        str(SCRIPTS / "supernode.sh"),
        str(home),
        (folder / "address").read_text(),
        str(folder / "ca.pem"),
    ]
    command.append(str(folder / f"records{number}.npz"))
    env = environment(folder / f"flwr{number}") | {"CONFIDE_NODE_PORT": str(free_port())} | settings
    process = start(running, folder, f"node{number}", command, env)
    return process, lambda: b"SuperNode ID" in (folder / f"node{number}.log").read_bytes()


def start_run(
    folder: Path,
    campaigns: str,
    *,
    project: Path | None = None,
    timeout: float = 120.0,
    more: str = "",
) -> Any:
    """Run a project against the deployment, by default its own checkout; return the run's id."""
    config = (
        f'{more} campaigns="{campaigns}" epsilon=2.0 records={RECORDS} timeout={timeout} '
        f'output="{folder}/out" key-file="{folder}/aggregator.key" model="{EMBEDDED_MODEL.hex()}"'
    )
    bundled = str(project or folder / "checkout")
    return flwr(folder, "run", bundled, "own", "--run-config", config)["run-id"]


def outcome(folder: Path, run: Any, *, seconds: float = 500) -> str:
    """Wait for the end of a run, and return how it ended.

    The SuperLink's log tells of the end; asking `flwr list` again and again would keep a processor
    busy.
    """
    ended = re.compile(rf"Finished task \d+ of run {run}\b")
    wait_for(lambda: ended.search((folder / "superlink.log").read_text()), seconds=seconds)
    return str(wait_for(lambda: ended_as(folder, run)))


def ended_as(folder: Path, run: Any) -> str:
    """Return how a run ended; nothing if it has not."""
    runs = flwr(folder, "list", "own")["runs"]
    status = next(str(row["status"]) for row in runs if str(row["run-id"]) == str(run))
    return status if status.startswith("finished") else ""


def wait_for(ready: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait until `ready` returns a true value."""
    deadline = time.monotonic() + seconds
    while not (found := ready()):
        assert time.monotonic() < deadline, "not ready in time"
        time.sleep(0.5)
    return found
