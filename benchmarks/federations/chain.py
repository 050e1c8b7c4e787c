"""Train and calibrate by the commands that operators and owners type, over a real gRPC server.

Run `python benchmarks/federations/chain.py [--data FILE] [--owners 5] [--train-share 0.45]
[--engine hooks] [--json FILE] [--markdown]`. FILE is an npz archive of features (n, d) in [0, 1]
and labels (n,) from 0, or of x_train, y_train, x_test and y_test, which are put together; records
whose d is a square are images. Without it the records are the embedded letters. 1,500 records are
for testing, and the others are dealt to the owners.

A server (`confide-aggregator serve`), the operator (`confide-aggregator chain`) and every owner
(`confide-client contribute`, once a campaign) are processes of their own, with TLS between them.
Owners train a convolutional network on a share of their records at epsilon 4, and calibrate it at
epsilon 1 on the rest: by counts for a trusted aggregator, by counts that they noise, and by bits;
and on the records that trained, by the full-data methods. With `--train-share 1` all records train,
and only the latter follow. Every card is verified; accuracy, coverage and set sizes are measured on
the test records with the model file that the operator gets. Two rows are for comparison: all
records with one owner, and no privacy. Every calibration is repeated 100 times in process with the
trained model, for its mean coverage. It takes a few minutes on two cores. Exit status 1 if a card
does not verify.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from benchmarks.federations.chain_commands import (
    ALPHA,
    EPSILON,
    TRAIN_SHARE,
    Chain,
    Split,
    calibration_settings,
    calibrations,
    chain_file,
    say,
    shared_settings,
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
from confide.protocol.simulated.dealing import deal
from tests.support.owners.owners import PUBLIC

Row = dict[str, Any]
TEST, REPEATS = 1_500, 100
MEAN = "mean coverage (s.e.)"
PARTS = ("x_train", "x_test", "y_train", "y_test")


def read_data(path: Path | None) -> Records:
    """Records of a file, of one part or of two, or the embedded ones."""
    if path is not None and path.is_file():
        with np.load(path, allow_pickle=False) as archive:
            if set(PARTS) <= set(archive):
                found = [archive[name] for name in PARTS]
                labels = np.concatenate(found[2:]).astype(np.int64)
                return Records(np.concatenate(found[:2]), labels)
    return Records(*read(path))


def card_row(
    campaign: str, card: Card, found: Measured, *, owners: int, key: bytes = PUBLIC
) -> Row:
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


def measure(data: Records, *, owners: int, train_share: float, engine: str, folder: Path) -> Row:
    """Run the chain and its comparisons; return the rows and what they are about."""
    records = len(data) - TEST
    dealt, rest, _ = deal(data.labels, owners=owners, records=records, seed=0)
    shares, test = [data.at(places) for places in dealt], data.at(rest)
    given: Row = {"records": records, "owners": owners, "train_share": train_share}
    terms = training_terms(data, **given)
    text = chain_file(data, shared_settings(terms, **given))
    say(f"{records} records, {owners} owners, {terms.size} weights")
    chain, campaigns = Chain(folder, text, shares, engine=engine), calibrations(train_share)
    chain.run(campaigns)
    split, found = chain.split(shares, test), Measured.of(chain.model, test)
    cards = {name: chain.card(name) for name in campaigns}
    rows = [card_row(name, card, found, owners=owners) for name, card in cards.items()]
    say(f"every calibration again, {REPEATS} times in process")
    repeated = repetitions(chain, split, cards, owners=owners)
    for row in rows:
        row[MEAN] = repeated[row["calibrated by"]].mean()
    if train_share < 1:
        rows += [row | {MEAN: "-"} for row in comparisons(terms, split)]
    bits = repeated.get("bits:certified")
    numbers = {
        "training": len(split.train),
        "calibration on others": len(split.calibrate),
        "test": len(test),
    }
    return {
        "records": numbers,
        "chain": text,
        "gradients": sorted(chain.said),
        "rows": rows,
        "trivial bits": None if bits is None else bits.trivial,
        "whole chain": whole(cards),
    }


def repetitions(
    chain: Chain, split: Split, campaigns: Iterable[str], *, owners: int
) -> dict[str, Again]:
    """Every calibration of a chain, repeated in process with its model."""
    trained = Measured.of(chain.model, split.train)
    rest = [Measured.of(chain.model, part) for part in (split.calibrate, split.test)]
    others = Measured(
        np.concatenate([part.probs for part in rest]),
        np.concatenate([part.labels for part in rest]),
    )
    return {
        name: again(
            chain.plan(name)[0],
            trained=trained,
            rest=others,
            calibrating=len(split.calibrate),
            owners=owners,
            repeats=REPEATS,
        )
        for name in campaigns
    }


def whole(cards: dict[str, Card]) -> float:
    """What a record pays in the whole chain, at most; every card says it."""
    (paid,) = {card.formal["chain"]["epsilon"] for card in cards.values()}
    return float(paid)


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


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, help="npz file of features and labels")
    parser.add_argument("--owners", type=int, default=5)
    parser.add_argument("--train-share", type=float, default=TRAIN_SHARE)
    parser.add_argument("--engine", default="hooks", help="of the owners (default: hooks, Opacus)")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    parser.add_argument("--markdown", action="store_true", help="as docs/training.md shows it")
    arguments = parser.parse_args()
    if arguments.owners < 1:
        parser.error(f"--owners is {arguments.owners}; accepted is at least 1")
    if not 0 < arguments.train_share <= 1:
        parser.error(f"--train-share is {arguments.train_share}; accepted is above 0 up to 1")
    began = time.monotonic()
    try:
        data = read_data(arguments.data)
        if len(data) < 2 * TEST:
            raise BadInput(f"there are {len(data)} records; accepted are at least {2 * TEST}")
        with tempfile.TemporaryDirectory() as folder:
            found = measure(
                data,
                owners=arguments.owners,
                train_share=arguments.train_share,
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
