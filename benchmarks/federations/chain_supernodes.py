"""Train and calibrate over real Flower SuperNodes, as docs/deployment.md starts them.

Run `python benchmarks/federations/chain_supernodes.py [--data FILE] [--owners 5] [--engine hooks]
[--json FILE] [--markdown]`, with a FILE like that of `chain.py`. A SuperLink and a SuperNode for
each owner are processes of their own, with TLS and node authentication between them; one run (`flwr
run`) trains the convolutional network of `chain.py` at epsilon 4 and calibrates it at epsilon 1, on
the records that did not train and on those that did. Every card is verified; accuracy, coverage and
set sizes are measured on 1,500 other records. One owner of all records and no privacy stand beside
it, as in `chain.py`. It takes some ten minutes on two cores: a SuperNode starts a process for every
message. Exit status 1 if a card does not verify.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.federations.chain import TEST, card_row, comparisons, read_data, show, whole
from benchmarks.federations.chain_commands import (
    EPSILON,
    FINER_BINS,
    TRAIN_SHARE,
    TRAINING,
    gradient_lines,
    say,
    split,
    training_settings,
    training_terms,
)
from benchmarks.federations.chain_comparison import SCORE, Measured, Records
from confide.aggregator.keys import create_keys, read_key
from confide.client.home import Home
from confide.client.transport.pinned_launcher import bundle_hash, pin
from confide.protocol.cards.card import read_card
from confide.protocol.errors import BadInput
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.simulated.dealing import deal
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

CAMPAIGNS = (
    "central:trusted",
    "central:owner-noised",
    "bits:certified",
    "full-data:certified",
    "full-data:certified-owner-noised",
)
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


def run_config(data: Records, terms: TrainingTerms, *, records: int, folder: Path) -> str:
    """The run configuration, with the training of `chain.py`."""
    settings: dict[str, Any] = {
        "campaigns": " ".join((TRAINING, *CAMPAIGNS)),
        "score": SCORE,
        "labels": terms.outputs,
        "records": records,
        "train-share": TRAIN_SHARE,
        "epsilon": EPSILON,
        "training-epsilon": terms.epsilon,
        "bins": FINER_BINS,
        **{name: value for name, value in training_settings(data).items() if name != "epsilon"},
        "timeout": float(SECONDS),
        "output": str(folder / "out"),
        "key-file": str(folder / "aggregator.key"),
    }
    return " ".join(f"{name}={json.dumps(value)}" for name, value in settings.items())


def measure(data: Records, *, owners: int, engine: str, folder: Path) -> dict[str, Any]:
    """Run the chain; return the rows of its cards and how many records there were."""
    records = len(data) - TEST
    dealt, rest, _ = deal(data.labels, owners=owners, records=records, seed=0)
    shares, test = [data.at(places) for places in dealt], data.at(rest)
    terms = training_terms(data, records=records, owners=owners, train_share=TRAIN_SHARE)
    config = run_config(data, terms, records=records, folder=folder)

    def prepare(public: bytes) -> int:
        for number, mine in enumerate(shares):
            write_owner(folder, number, mine, aggregator=public)
        return len(shares)

    with deployed(folder, prepare, CONFIDE_ENGINE=engine):
        say(f"{records} records, {owners} SuperNodes")
        run = flwr(folder, "run", str(ROOT), "own", "--run-config", config)["run-id"]
        ended = outcome(folder, run, seconds=LONGEST)
    if ended != "finished:completed":
        raise BadInput(f"the run is {ended}: {(folder / 'superlink.log').read_text()[-2000:]}")
    model = (folder / "out" / f"{TRAINING.replace(':', '-')}.onnx").read_bytes()
    public = read_key(folder / "aggregator.key").public_key().public_bytes_raw()
    found = Measured.of(model, test)
    cards = {
        name: read_card(folder / "out" / f"{name.replace(':', '-')}.card.json")
        for name in CAMPAIGNS
    }
    rows = [card_row(name, card, found, owners=owners, key=public) for name, card in cards.items()]
    training = Plan.from_bytes(bytes.fromhex(cards[CAMPAIGNS[0]].formal["chain"]["training"]))
    folders = [
        (folder / f"home{number}", folder / f"records{number}.npz") for number in range(owners)
    ]
    parts = split(training, folders, shares, test=test)
    rows += comparisons(terms, parts)
    numbers = {
        "training": len(parts.train),
        "calibration on others": len(parts.calibrate),
        "test": len(test),
    }
    logs = [(folder / f"node{number}.log").read_text() for number in range(owners)]
    return {
        "records": numbers,
        "gradients": sorted(set().union(*map(gradient_lines, logs))),
        "rows": rows,
        "trivial bits": None,
        "whole chain": whole(cards),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="npz file of features and labels")
    parser.add_argument("--owners", type=int, default=5)
    parser.add_argument("--engine", default="hooks", help="of the owners (default: hooks, Opacus)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="as docs/training.md shows it")
    arguments = parser.parse_args()
    if arguments.owners < 1:
        parser.error(f"--owners is {arguments.owners}; accepted is at least 1")
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(
                read_data(arguments.data),
                owners=arguments.owners,
                engine=arguments.engine,
                folder=Path(folder),
            )
    except BadInput as error:
        parser.error(str(error))
    say(f"{time.monotonic() - began:.0f} s in all")
    show(found, markdown=arguments.markdown)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")
    if any(row["card"].startswith("FAILS") for row in found["rows"]):
        sys.exit(1)


if __name__ == "__main__":
    main()
