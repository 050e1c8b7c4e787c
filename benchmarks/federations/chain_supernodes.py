"""Train and calibrate over real Flower SuperNodes, as docs/deployment.md starts them.

Run `python benchmarks/federations/chain_supernodes.py` with the options of `chain.py`. A SuperLink
and a SuperNode for each owner are processes of their own, with TLS and node authentication between
them; one run (`flwr run`) trains the convolutional network of `chain.py` at epsilon 4 and
calibrates it at epsilon 1, on the records that did not train and on those that did. What is
measured, repeated and compared is that of `chain.py`. It takes some ten minutes on two cores: a
SuperNode starts a process for every message. Exit status 1 if a card does not verify.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.federations.chain_commands import (
    EPSILON,
    FINER_BINS,
    TRAINING,
    calibrations,
    gradient_lines,
    say,
    split,
    training_settings,
)
from benchmarks.federations.chain_comparison import SCORE, Records
from benchmarks.federations.chain_rows import Dealt, Ran, run
from confide.aggregator.keys import create_keys, read_key
from confide.client.home import Home
from confide.client.transport.pinned_launcher import bundle_hash, pin
from confide.protocol.cards.card import read_card
from confide.protocol.errors import BadInput
from confide.protocol.plan import Plan
from confide.simulation.federation.harness import free_port
from tests.support.programs.deployments import (
    SCRIPTS,
    environment,
    flwr,
    outcome,
    start,
    start_node,
    together,
    wait_for,
)
from tests.support.repository.places import ROOT
from tests.support.training.chains import POLICY

# A round, and a whole run, on a machine that does other work too.
SECONDS, LONGEST = 600, 3_600


def write_owner(folder: Path, number: int, mine: Records, *, aggregator: bytes) -> None:
    """An owner's folder, pinned to this code, its policy and its records."""
    home = Home(folder / f"home{number}")
    home.create()
    policy = POLICY | {"aggregators": f'["{aggregator.hex()}"]'}
    lines = home.policy_file.read_text().splitlines()
    for name, value in policy.items():
        lines = [f"{name} = {value}" if line.startswith(f"{name} =") else line for line in lines]
    home.policy_file.write_text("\n".join(lines) + "\n")
    pin(folder / f"home{number}" / "launchers", [bundle_hash(ROOT)])
    held = {"features": mine.features, "labels": mine.labels, "ids": np.arange(len(mine))}
    np.savez(folder / f"records{number}.npz", **held)


@contextmanager
def deployed(folder: Path, prepare: Callable[[bytes], int], **settings: str) -> Iterator[None]:
    """A SuperLink and SuperNodes, which end with the block.

    `prepare` is given the aggregator's public key, writes the owners, and returns their number.
    `settings` are variables of the nodes.
    """
    create_keys(folder, address="127.0.0.1", now=datetime.now(UTC))
    owners = prepare(read_key(folder / "aggregator.key").public_key().public_bytes_raw())
    address = f"127.0.0.1:{free_port()}"
    (folder / "address").write_text(address)
    (folder / "cli").mkdir()
    own = f'[superlink.own]\naddress = "{address}"\nroot-certificates = "{folder}/ca.pem"\n'
    (folder / "cli" / "config.toml").write_text(f'[superlink]\ndefault = "own"\n\n{own}')
    with together() as links, together() as running:
        command = [str(SCRIPTS / "superlink.sh"), str(folder), *address.split(":")]
        start(links, folder, "superlink", command, environment(folder / "flwr"))
        wait_for(lambda: b"Uvicorn running" in (folder / "superlink.log").read_bytes(), SECONDS)
        nodes = [start_node(running, folder, number, **settings) for number in range(owners)]
        wait_for(lambda: all(ready() for _, ready in nodes), SECONDS)
        yield


def run_config(dealt: Dealt, folder: Path) -> str:
    """The run configuration, with the training of `chain.py`."""
    terms, training = dealt.terms, training_settings(dealt.data)
    settings: dict[str, Any] = {
        "campaigns": " ".join((TRAINING, *calibrations(dealt.train_share))),
        "score": SCORE,
        "labels": terms.outputs,
        "records": dealt.expected["records"],
        "train-share": dealt.train_share,
        "epsilon": EPSILON,
        "training-epsilon": terms.epsilon,
        "bins": FINER_BINS,
        **{name: value for name, value in training.items() if name != "epsilon"},
        "timeout": float(SECONDS),
        "output": str(folder / "out"),
        "key-file": str(folder / "aggregator.key"),
    }
    return " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())


def over_supernodes(dealt: Dealt, folder: Path, engine: str) -> Ran:
    """Train and calibrate by one run."""
    owners, config = range(len(dealt.shares)), run_config(dealt, folder)

    def prepare(public: bytes) -> int:
        for number, mine in enumerate(dealt.shares):
            write_owner(folder, number, mine, aggregator=public)
        return len(owners)

    with deployed(folder, prepare, CONFIDE_ENGINE=engine):
        say(f"{dealt.expected['records']} records, {len(owners)} SuperNodes")
        started = flwr(folder, "run", str(ROOT), "own", "--run-config", config)["run-id"]
        ended = outcome(folder, started, seconds=LONGEST)
    if ended != "finished:completed":
        raise BadInput(f"the run is {ended}: {(folder / 'superlink.log').read_text()[-2000:]}")
    cards = {
        name: read_card(folder / "out" / f"{name.replace(':', '-')}.card.json")
        for name in calibrations(dealt.train_share)
    }
    first = next(iter(cards.values()))
    folders = [(folder / f"home{number}", folder / f"records{number}.npz") for number in owners]
    logs = [(folder / f"node{number}.log").read_text() for number in owners]
    return Ran(
        settings=config,
        model=(folder / "out" / f"{TRAINING.replace(':', '-')}.onnx").read_bytes(),
        cards=cards,
        key=read_key(folder / "aggregator.key").public_key().public_bytes_raw(),
        split=split(
            Plan.from_bytes(bytes.fromhex(first.formal["chain"]["training"])),
            folders,
            dealt.shares,
            test=dealt.test,
        ),
        gradients=set().union(*map(gradient_lines, logs)),
    )


if __name__ == "__main__":
    run(__doc__, over_supernodes)
