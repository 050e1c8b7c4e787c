"""A chain with a head: owners train layers on a frozen model, and calibrate both as one file."""

import hashlib
from dataclasses import replace
from pathlib import Path

from confide.aggregator.campaigns.driver import run_campaign, run_training
from confide.aggregator.campaigns.planning.plans import make_plan
from confide.aggregator.campaigns.training_result import model_file
from confide.aggregator.cards.issue import campaign_card
from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.client.respond import Respondent
from confide.protocol.architectures.export import predict_file
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.models.model_file import Model
from tests.support.cards.cards import broken
from tests.support.networks.heads import BACKBONE, INPUTS, head_plan
from tests.support.owners.owners import KEY, NOW
from tests.support.training.learners import people
from tests.support.training.trained_chain import ALLOWS, OWNERS, TRAINS, N, asked

PLAN = head_plan(TRAINS, BACKBONE, features=INPUTS)
POLICY = replace(ALLOWS, models=frozenset({BACKBONE.digest}))
SETTINGS = {
    "score": "hps",
    "labels": 3,
    "alpha": 0.1,
    "records": OWNERS * N,
    "minimum-reports": 50,
    "minimum-owners": 1,
    "mechanism": "rank-exponential",
    "epsilon": 1.0,
    "bins": 256,
    "beta": 0.002,
    "grid": "mixed",
    "guarantee": "marginal",
    "privacy-delta": 1e-6,
}


def owners(folder: Path, model: Model) -> list[Respondent]:
    found = []
    for seed in range(1, OWNERS + 1):
        features, labels = people(N, seed)
        names = tuple(f"{seed}/{i}".encode() for i in range(N))
        found.append(
            Respondent(
                records=Records(names, None, labels, None, features),
                policy=lambda: POLICY,
                ledger=Ledger(folder / f"{seed}.sqlite"),
                secret=bytes([seed]) * 32,
                entropy=SeededEntropy(seed, model.digest.hex()),
                now=lambda: NOW,
                cache=folder / f"results-{seed}",
                model=model,
            )
        )
    return found


def test_a_head_is_trained_and_calibrated_as_one_file(tmp_path: Path) -> None:
    """On records that did not train and on those that did: the cards name the joined file, which
    is not the backbone, and verify."""
    learned, _ = run_training(PLAN, asked(PLAN, owners(tmp_path, BACKBONE)))
    file = model_file(PLAN, learned.weights, backbone=BACKBONE.data)
    features, labels = people(2_000, 99)
    assert (predict_file(file, features).argmax(axis=1) == labels).mean() > 0.6
    name = hashlib.sha256(file).hexdigest()
    assert name != BACKBONE.digest.hex()
    for campaign in ("central:trusted", "full-data:certified"):
        plan = make_plan(
            campaign,
            SETTINGS | {"model": name},
            title=campaign,
            valid=(PLAN.issued, PLAN.expires),
            training=PLAN,
        )
        outcome = run_campaign(plan, asked(plan, owners(tmp_path, Model.of(file))))
        assert outcome.received == {"OK": OWNERS}
        card = campaign_card(plan, outcome, diagnostic={}, issued=NOW, training=PLAN).sign(KEY)
        assert broken(card) == []
        assert card.formal["released"]["model"] == name
        assert 0.1 < card.formal["released"]["threshold"] < 1
