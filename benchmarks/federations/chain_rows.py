"""Rows of the tables of chains, and the options of both: for `chain.py` and `chain_supernodes.py`.

Each runs a chain in its own way; what is dealt to the owners, what is measured of the model and of
the cards, and what stands beside them in process is the same.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from benchmarks.federations.chain_commands import (
    ALPHA,
    EPSILON,
    TRAIN_SHARE,
    Split,
    calibration_settings,
    say,
    shared_settings,
    together,
    training_terms,
)
from benchmarks.federations.chain_comparison import (
    SCORE,
    Again,
    Measured,
    Records,
    again,
    alone,
    counted,
    one_owner,
    without_privacy,
)
from benchmarks.markdown import table
from benchmarks.training.federated_training import read
from confide.aggregator.cli.plan_options import with_defaults
from confide.aggregator.procedures.nonprivate import split_conformal
from confide.protocol.cards.card import Card
from confide.protocol.cards.verify.card import verify
from confide.protocol.certificate import Certificate
from confide.protocol.errors import BadInput
from confide.protocol.methods.base import FULL_DATA
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.plan import Plan
from confide.protocol.simulated.dealing import deal

Row = dict[str, Any]
TEST, REPEATS = 1_500, 100
MEAN = "mean coverage (s.e.)"
PARTS = ("x_train", "x_test", "y_train", "y_test")


@dataclass(frozen=True)
class Dealt:
    """The records of the owners and those of the test, and the training they are for."""

    data: Records
    shares: list[Records]
    test: Records
    train_share: float

    @staticmethod
    def of(data: Records, *, owners: int, train_share: float) -> "Dealt":
        if len(data) < 2 * TEST:
            raise BadInput(f"there are {len(data)} records; accepted are at least {2 * TEST}")
        dealt, rest, _ = deal(data.labels, owners=owners, records=len(data) - TEST, seed=0)
        return Dealt(data, [data.at(places) for places in dealt], data.at(rest), train_share)

    @property
    def expected(self) -> Row:
        """What plans say of the records."""
        return {
            "records": len(self.data) - TEST,
            "owners": len(self.shares),
            "train_share": self.train_share,
        }

    @property
    def terms(self) -> TrainingTerms:
        return training_terms(self.data, **self.expected)


@dataclass(frozen=True)
class Ran:
    """What a chain left: its settings, its cards with their key, and what owners did."""

    settings: str
    model: bytes
    cards: dict[str, Card]
    key: bytes
    split: Split
    gradients: set[str]


def read_data(path: Path | None) -> Records:
    """Records of a file, of one part or of two, or the embedded ones."""
    if path is not None and path.is_file():
        with np.load(path, allow_pickle=False) as archive:
            if set(PARTS) <= set(archive):
                found = [archive[name] for name in PARTS]
                labels = np.concatenate(found[2:]).astype(np.int64)
                return Records(np.concatenate(found[:2]), labels)
    return Records(*read(path))


def card_row(campaign: str, card: Card, found: Measured, *, owners: int, key: bytes) -> Row:
    """What the card says, and what was measured."""
    formal = card.formal
    broken = [finding.clause for finding in verify(card, key=key) if not finding.holds]
    coverage, size = found.sets(SCORE, formal["released"]["threshold"])
    paid = [formal["chain"]["epsilon_train"], formal["chain"]["epsilon_calibration"]]
    return {
        "trained by": f"{owners} owners",
        "calibrated by": campaign,
        "epsilon, training": paid[0],
        "epsilon, calibration": paid[1],
        "epsilon of a record": sum(paid) if formal["track"] == FULL_DATA else max(paid),
        "accuracy": found.accuracy,
        "coverage": coverage,
        "mean set size": size,
        "card": f"FAILS {broken}" if broken else f"{formal['decision']}, verified",
    }


def compared_row(trained: str, certificate: Certificate, found: Measured, spent: float) -> Row:
    """What was measured of a model that was trained and calibrated in process."""
    coverage, size = found.sets(SCORE, certificate.threshold)
    private = certificate.epsilon is not None
    return {
        "trained by": trained,
        "calibrated by": "counts" if private else "split conformal",
        "epsilon, training": spent if private else None,
        "epsilon, calibration": EPSILON if private else None,
        "epsilon of a record": max(spent, EPSILON) if private else None,
        "accuracy": found.accuracy,
        "coverage": coverage,
        "mean set size": size,
        "card": "-",
        MEAN: "-",
    }


def comparisons(terms: TrainingTerms, split: Split) -> list[Row]:
    """Train and calibrate on the same records in process, with one owner and without privacy."""
    # One thread, as owners have: threads wait for each other where cores are shared.
    torch.set_num_threads(1)
    say(f"one owner of {len(split.train)} records")
    own = alone(terms, records=len(split.train))
    central = one_owner(own, split.train)
    say("no privacy")
    plain = without_privacy(terms, split.train)
    values = with_defaults(
        shared_settings(terms, records=len(split.calibrate), owners=1, train_share=0.0)
        | calibration_settings("central:trusted")
        | {"model": bytes(32).hex()}
    )
    certificates = {
        "one owner": (
            central,
            counted(values, Measured.of(central, split.calibrate).scores(SCORE)),
        ),
        "no privacy": (
            plain,
            split_conformal(Measured.of(plain, split.calibrate).scores(SCORE), alpha=ALPHA),
        ),
    }
    spent = own.spent(own.privacy_delta)
    return [
        compared_row(name, certificate, Measured.of(model, split.test), spent)
        for name, (model, certificate) in certificates.items()
    ]


def repetitions(ran: Ran, *, owners: int) -> dict[str, Again]:
    """Every calibration of a chain, repeated in process with its model."""
    split = ran.split
    trained = Measured.of(ran.model, split.train)
    # None are left for calibration where all records train.
    others = Measured.of(ran.model, together([split.calibrate, split.test]))
    return {
        name: again(
            Plan.from_bytes(bytes.fromhex(card.formal["plan"])),
            trained=trained,
            rest=others,
            calibrating=len(split.calibrate),
            owners=owners,
            repeats=REPEATS,
        )
        for name, card in ran.cards.items()
    }


def measured(dealt: Dealt, ran: Ran) -> Row:
    """The rows of a chain and of its comparisons, and what they are about."""
    split, owners = ran.split, len(dealt.shares)
    found = Measured.of(ran.model, split.test)
    say(f"every calibration again, {REPEATS} times in process")
    repeated = repetitions(ran, owners=owners)
    rows = [
        card_row(name, card, found, owners=owners, key=ran.key) | {MEAN: repeated[name].mean()}
        for name, card in ran.cards.items()
    ]
    if dealt.train_share < 1:
        rows += comparisons(dealt.terms, split)
    bits = repeated.get("bits:certified")
    # Every card says what a record pays in the whole chain, at most.
    (whole,) = {float(card.formal["chain"]["epsilon"]) for card in ran.cards.values()}
    return {
        "records": {
            "training": len(split.train),
            "calibration on others": len(split.calibrate),
            "test": len(split.test),
        },
        "chain": ran.settings,
        "gradients": sorted(ran.gradients),
        "rows": rows,
        "trivial bits": None if bits is None else bits.trivial,
        "whole chain": whole,
    }


def cells(row: Row) -> list[str]:
    """The cells of a row, as texts."""
    return [
        value if isinstance(value, str) else "-" if value is None else f"{value:.3g}"
        for value in row.values()
    ]


def show(found: Row, *, markdown: bool) -> None:
    rows = found["rows"]
    if markdown:
        print(table(list(rows[0]), map(cells, rows)))
    else:
        drawn = Table()
        for heading in rows[0]:
            drawn.add_column(heading)
        for row in rows:
            drawn.add_row(*cells(row))
        Console(width=None if sys.stdout.isatty() else 140).print(drawn)
    numbers = ", ".join(f"{count:,} for {name}" for name, count in found["records"].items())
    print(f"\nRecords: {numbers}.")
    for line in found["gradients"]:
        print(f"Owners: {line}.")
    print(f"A record pays at most epsilon {found['whole chain']:.3g} in the whole chain.")
    if found["trivial bits"] is not None:
        print(
            f"Of {REPEATS} campaigns of bits in process, {found['trivial bits']:.0%} certify none."
        )


def run(about: str, chain: Callable[[Dealt, Path, str], Ran]) -> None:
    """Deal the records, run a chain in a folder with an engine, and show what was measured."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="npz file of features and labels")
    parser.add_argument("--owners", type=int, default=5)
    parser.add_argument("--train-share", type=float, default=TRAIN_SHARE)
    parser.add_argument("--engine", default="hooks", help="of the owners (default: hooks, Opacus)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="as docs/training.md shows it")
    given = parser.parse_args()
    if given.owners < 1:
        parser.error(f"--owners is {given.owners}; accepted is at least 1")
    if not 0 < given.train_share <= 1:
        parser.error(f"--train-share is {given.train_share}; accepted is above 0 up to 1")
    began = time.monotonic()
    try:
        data = read_data(given.data)
        dealt = Dealt.of(data, owners=given.owners, train_share=given.train_share)
        with tempfile.TemporaryDirectory() as folder:
            found = measured(dealt, chain(dealt, Path(folder), given.engine))
    except BadInput as error:
        parser.error(str(error))
    say(f"{time.monotonic() - began:.0f} s in all")
    show(found, markdown=given.markdown)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=2) + "\n")
    if any(row["card"].startswith("FAILS") for row in found["rows"]):
        sys.exit(1)
