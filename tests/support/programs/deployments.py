"""A Flower deployment over TLS, started with the scripts of the documents."""

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from confide.client.home import Home
from confide.protocol.models.model_file import Model
from confide.protocol.simulated.embedded import embedded_model, owned, predictions
from confide.protocol.simulated.settings import EMBEDDED_MODEL
from confide.simulation.federation.harness import HOME, QUIET, free_port, stop
from tests.support.repository.places import ROOT

TOOLS = Path(sys.executable).parent
SCRIPTS = ROOT / "docs" / "deployment"
# A SuperNode starts a process for every message, so a node more costs seconds a round.
NODES, RECORDS = 2, 3_000
SITE, BACKBONE_FILE = "site", "backbone.onnx"
# From 16 features to 26 numbers; owners hold its file.
BACKBONE = Model.of(embedded_model())


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
        ("\nmodels = []", f'\nmodels = ["{EMBEDDED_MODEL.hex()}", "{BACKBONE.digest.hex()}"]'),
        (
            'methods = ["bits"]',
            'methods = ["bits", "labels", "central", "training", "full-data"]',
        ),
        ("exact_counts_may_leave = false", "exact_counts_may_leave = true"),
        ("trained_models = false", "trained_models = true"),
        ("probabilities_may_leave = false", "probabilities_may_leave = true"),
        ("epsilon_per_record = 4.0", "epsilon_per_record = 20.0"),
    ):
        policy = policy.replace(old, new)
    home.policy_file.write_text(policy)
    probs, labels = predictions()
    held = {"probs": probs[share], "features": owned()[0][share], "labels": labels[share]}
    np.savez(folder / f"records{number}.npz", ids=share, **held)


def environment(home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    own = {
        HOME: str(home),
        "PATH": f"{TOOLS}{os.pathsep}{os.environ['PATH']}",
        # Packages with factories, which aggregator and owners have installed.
        "PYTHONPATH": str(home.parent / SITE),
    }
    return os.environ | QUIET | own


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
    with (folder / f"{name}.log").open("ab") as log:
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
    running: Running, folder: Path, number: int, *, again: bool = False, **settings: str
) -> tuple[subprocess.Popen[bytes], Ready]:
    """Start an owner's SuperNode, registered unless `again`; with it, what tells that it is ready.

    `settings` are variables of its environment, such as CONFIDE_ENGINE.
    """
    home, log = folder / f"home{number}", folder / f"node{number}.log"
    if not again:
        flwr(folder, "supernode", "register", str(home / "node.pub"), "own")
    known = log.stat().st_size if log.exists() else 0
    command = [
        str(SCRIPTS / "supernode.sh"),
        str(home),
        (folder / "address").read_text(),
        str(folder / "ca.pem"),
        str(folder / f"records{number}.npz"),
    ]
    if (folder / BACKBONE_FILE).exists():
        command.append(str(folder / BACKBONE_FILE))
    env = environment(folder / f"flwr{number}") | {"CONFIDE_NODE_PORT": str(free_port())} | settings
    process = start(running, folder, f"node{number}", command, env)
    return process, lambda: b"SuperNode ID" in log.read_bytes()[known:]


def restart_node(running: Running, folder: Path, number: int) -> None:
    """Kill a SuperNode (SIGKILL); start it until the SuperLink takes it again, within a minute."""
    _kill(folder / f"flwr{number}")
    taken = False
    while not taken:
        process, ready = start_node(running, folder, number, again=True)
        wait_for(lambda: ready() or process.poll() is not None, 180)  # noqa: B023
        taken = ready()


def start_run(
    folder: Path,
    campaigns: str,
    *,
    project: Path | None = None,
    timeout: float = 120.0,
    **settings: Any,
) -> Any:
    """Run a project against the deployment, by default its own checkout; return the run's id."""
    given = {
        "campaigns": campaigns,
        "epsilon": 2.0,
        "records": RECORDS,
        "timeout": timeout,
        "output": str(folder / "out"),
        "key-file": str(folder / "aggregator.key"),
        "model": EMBEDDED_MODEL.hex(),
    } | {name.replace("_", "-"): value for name, value in settings.items()}
    config = " ".join(f"{name}={json.dumps(value)}" for name, value in given.items())
    bundled = str(project or folder / "checkout")
    return flwr(folder, "run", bundled, "own", "--run-config", config)["run-id"]


def start_superlink(running: Running, folder: Path) -> None:
    """Start the SuperLink of a folder, at its address, and wait until it answers."""
    log = folder / "superlink.log"
    known = log.stat().st_size if log.exists() else 0
    command = [str(SCRIPTS / "superlink.sh"), str(folder)]
    command += (folder / "address").read_text().split(":")
    start(running, folder, "superlink", command, environment(folder / "flwr"))
    wait_for(lambda: b"Uvicorn running" in log.read_bytes()[known:])


def kill_superlink(folder: Path) -> None:
    """Kill the SuperLink of a folder and its ServerApps, without a warning."""
    _kill(folder / "flwr")


def _kill(home: Path) -> None:
    """Kill (SIGKILL) all processes of a folder of Flower."""
    own = [
        one
        for one in psutil.process_iter(["environ"])
        if (one.info["environ"] or {}).get(HOME) == str(home)
    ]
    for one in own:
        with suppress(psutil.NoSuchProcess):
            one.kill()
    wait_for(lambda: all(map(_ended, own)))


def _ended(process: psutil.Process) -> bool:
    """Whether a process has ended, also if its parent has not taken note of it."""
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def answers(home: Home) -> dict[bytes, bytes]:
    """The answers that an owner's ledger holds, by the digest of the query."""
    with closing(sqlite3.connect(home.ledger_file)) as db:
        return dict(db.execute("SELECT digest, answer FROM queries WHERE LENGTH(answer) > 0"))


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


MISBEHAVING = """#!{python}
import os, pathlib, time
from confide.client import flower_app
from confide.client.transport import pinned_launcher as pinned
from flwr.supernode.runtime import run_clientapp as process

class Garbage:
    def answer(self, plan, query):
        return os.urandom(500)

def never(*_):
    pathlib.Path({marker!r}).touch()
    time.sleep(600)

def twice(client, message, context, push=process.push_message):
    push(client, message, context)
    message.metadata.created_at += 0.001
    push(client, message, context)

{behaviour}
pinned.launch({launchers!r})
"""
BEHAVIOURS = {
    "never": "flower_app._respondent = never",
    "killed": "flower_app._respondent = never",
    "garbage": "flower_app._respondent = lambda *_: Garbage()",
    "twice": "process.push_message = twice",
}


def misbehave(folder: Path, number: int, behaviour: str, *, asked: Path) -> None:
    """Let an owner's node behave like this; `asked` is written when it is asked."""
    launcher = folder / f"home{number}" / "launchers" / "flwr-clientapp"
    launcher.parent.mkdir()
    launcher.write_text(
        MISBEHAVING.format(
            python=sys.executable,
            marker=str(asked),
            behaviour=behaviour,
            launchers=str(folder / "home0" / "launchers"),
        )
    )
    launcher.chmod(0o755)
