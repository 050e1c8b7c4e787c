"""A chain as processes on this machine: for `chain.py`.

A server, the operator's `confide-aggregator chain` and every owner's `confide-client contribute`
are processes of their own, with TLS between them.
"""

import json
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.federations.chain_comparison import SCORE, Records
from confide.client.answering.participants import Participants
from confide.client.home import Home
from confide.client.records.reader import read_records
from confide.protocol.cards.card import Card, read_card
from confide.protocol.errors import BadInput
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan, digest
from tests.support.servers.servers import Place, Running
from tests.support.training.chains import Operator, Owner

Row = dict[str, Any]
TITLE, ALPHA = "benchmark", 0.1
TRAINING = "training:federated-averaging"
# On the records that did not train, and on those that did.
ON_THE_REST = ("central:trusted", "central:owner-noised", "bits:certified")
ON_THE_SAME = (
    "full-data:certified",
    "full-data:certified-owner-noised",
    "full-data:dpcp",
    "full-data:scp-f",
)
# Bits at epsilon 1 need several thousand records, counts and training some hundred an owner.
TRAIN_SHARE, EPSILON_TRAIN, EPSILON, DELTA = 0.45, 4.0, 1.0, 1e-6
# Ranks of full data lie near the top, where scores crowd; noised counts pay for every halving.
BINS, FINER_BINS = 256, 1024
ROUNDS, SAMPLING_RATE = 20, 0.5
SAID = "gradients by engine"


def calibrations(train_share: float) -> tuple[str, ...]:
    """The calibrations of a chain; if all records train, none are left for some of them."""
    return (*(ON_THE_REST if train_share < 1 else ()), *ON_THE_SAME)


def say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Split:
    """The records that train, calibrate and test, as the secrets of the owners divide them."""

    train: Records
    calibrate: Records
    test: Records


def architecture(features: int) -> str:
    """A network for square images: of two blocks, or of one if they are small."""
    side = math.isqrt(features)
    if side**2 != features or side < 2:
        raise BadInput(f"records have {features} features; accepted are square images, side 2 up")
    return f"cnn image=1,{side},{side} channels={'8,16' if side >= 8 else '16'}"


def training_settings(data: Records) -> Row:
    """The settings of the training; batch and learning rate follow the rule of the project."""
    return {
        "architecture": architecture(data.features.shape[1]),
        "features": data.features.shape[1],
        "epsilon": EPSILON_TRAIN,
        "privacy-delta": DELTA,
        "rounds": ROUNDS,
        "local-steps": 1,
        "sampling-rate": SAMPLING_RATE,
        "batch": "auto",
        "learning-rate": "auto",
        "momentum": 0.8,
        "averaged-rounds": 5,
        "centre": 0.5,
    }


def training_terms(
    data: Records, *, records: int, owners: int, train_share: float
) -> TrainingTerms:
    """The public numbers of the training."""
    expected = {"expected": round(train_share * records), "owners": owners, "clip": 1.0}
    settings = training_settings(data) | expected | {"labels": int(data.labels.max()) + 1}
    return TrainingTerms.from_settings("federated-averaging", settings)


def shared_settings(terms: TrainingTerms, *, records: int, owners: int, train_share: float) -> Row:
    return {
        "title": TITLE,
        "score": SCORE,
        "alpha": ALPHA,
        "labels": terms.outputs,
        "records": records,
        "owners": owners,
        "train-share": train_share,
    }


def chain_file(data: Records, shared: Row) -> str:
    """The file that the operator gives to `confide-aggregator chain`."""
    parts = [_toml(shared), "[training]", _toml(training_settings(data))]
    for campaign in calibrations(shared["train-share"]):
        parts += ["[[calibration]]", _toml(calibration_settings(campaign))]
    return "\n".join(parts)


def calibration_settings(campaign: str) -> Row:
    finer = campaign.startswith("full-data") and not campaign.endswith("owner-noised")
    bins = {} if campaign.startswith("bits") else {"bins": FINER_BINS if finer else BINS}
    return {"campaign": campaign, "epsilon": EPSILON} | bins


def _toml(values: Row) -> str:
    return "".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items())


class Chain:
    """One run of all commands, in a folder of its own."""

    def __init__(self, folder: Path, file: str, shares: list[Records], *, engine: str) -> None:
        self._engine, self.said = engine, set[str]()
        self.place = Place(folder / "aggregator")
        self.owners = [
            Owner(folder / str(number), self.place, mine.features, mine.labels)
            for number, mine in enumerate(shares)
        ]
        self.operator = Operator(self.place, folder, file)

    def run(self, campaigns: tuple[str, ...]) -> None:
        """Train, then calibrate; every owner takes part in every campaign."""
        with self._serving() as server:
            process = self.operator.start()
            try:
                for campaign in (TRAINING, *campaigns):
                    self._contribute(server, campaign)
                if process.wait(timeout=120):
                    raise BadInput(f"the operator failed: {self.operator.log.read_text()}")
            finally:
                process.kill()
                process.wait()

    def _contribute(self, server: Running, campaign: str) -> None:
        began, name = time.monotonic(), self.operator.campaign(f"{TITLE}: {campaign}")

        def answer(one: Owner) -> subprocess.CompletedProcess[str]:
            return one.contribute(server, name, engine=self._engine)

        with ThreadPoolExecutor(len(self.owners)) as pool:
            for done in pool.map(answer, self.owners):
                if done.returncode:
                    raise BadInput(f"an owner of {campaign} failed: {done.stderr}")
                self.said |= gradient_lines(done.stderr)
        say(f"{campaign}: {time.monotonic() - began:.0f} s")

    @contextmanager
    def _serving(self) -> Iterator[Running]:
        try:
            yield self.place.serve()
        finally:
            self.place.close()

    def plan(self, campaign: str) -> Plan:
        """The plan of a campaign."""
        title = f"{TITLE}: {campaign}"
        found = next(one for one in self.place.store.campaigns() if one.plan.campaign == title)
        return found.plan

    def split(self, shares: list[Records], test: Records) -> Split:
        """How the owners' secrets divided their records."""
        folders = [(owner.home, owner.records) for owner in self.owners]
        return split(self.plan(TRAINING), folders, shares, test=test)

    def card(self, campaign: str) -> Card:
        return read_card(self.operator.out / f"{campaign.replace(':', '-')}.card.json")

    @property
    def model(self) -> bytes:
        return (self.operator.out / "model.onnx").read_bytes()


def split(
    training: Plan, folders: list[tuple[Path, Path]], shares: list[Records], *, test: Records
) -> Split:
    """How the secrets of owners with these folders and files divided their records."""
    parts: tuple[list[Records], list[Records]] = ([], [])
    for (folder, file), mine in zip(folders, shares, strict=True):
        home = Home(folder)
        ledger = home.ledger()
        who = Participants(read_records(file), ledger, home.secret())
        taking, _ = who.taking_part(training, digest(training.to_bytes()))
        ledger.close()
        parts[0].append(mine.at(taking))
        parts[1].append(mine.at(np.setdiff1d(np.arange(len(mine)), taking)))
    return Split(together(parts[0]), together(parts[1]), test)


def gradient_lines(log: str) -> set[str]:
    """What owners logged of their engines."""
    return {line[line.index(SAID) :] for line in log.splitlines() if SAID in line}


def together(parts: list[Records]) -> Records:
    """All records of the parts."""
    return Records(
        np.concatenate([one.features for one in parts]),
        np.concatenate([one.labels for one in parts]),
    )
