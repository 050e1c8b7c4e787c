"""From a contract to a campaign: `confide-card search` and what `campaign create` makes of it."""

from pathlib import Path

import numpy as np
import pytest

from confide.aggregator.campaigns.driver import run_campaign
from confide.aggregator.cards.issue import campaign_card
from confide.aggregator.keys import SIGNING_KEY
from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.cards.words.in_words import in_words
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.plan import Plan, sign_plan
from confide.protocol.wire import wire_pb2 as wire
from tests.support.cards.cards import KEY, broken, command
from tests.support.cards.central import CENTRAL
from tests.support.owners.owners import MODEL, asking, owner, records, scored
from tests.support.servers.operating import said
from tests.support.servers.servers import Place

CONTRACT_FILE = """
name = "five classes"
[contract]
coverage = 0.85
beta = 1e-3
epsilon_train = 0
epsilon_calibration = 1.0
[grid]
mechanism = ["rank-exponential", "laplace-counts"]
gamma = [0.8, 0.9]
n = 3000
bins = [16, 256]
epsilon_train = 0
epsilon_calibration = [0.5, 1.0]
"""


@pytest.fixture
def contract(tmp_path: Path) -> Path:
    path = tmp_path / "contract.toml"
    path.write_text(CONTRACT_FILE)
    held = records(6000, 9)
    np.savez(tmp_path / "public.npz", probs=scored(held), labels=held.truth)
    return path


def test_a_contract_is_searched_tried_and_run(contract: Path, place: Place, tmp_path: Path) -> None:
    """The file that the search writes is a campaign as it stands, but for the model's digest; the
    card that owners' counts give keeps the contract that was searched."""
    found, made = tmp_path / "found.json", tmp_path / "campaign.toml"
    tried = ("--records", tmp_path / "public.npz", "--campaign", made, "--out", found)
    done = command("search", contract, *tried)
    assert (done.exit_code, done.stderr) == (0, "")
    card = read_card(found)
    assert not [one for one in verify(card, unsigned=True) if not one.holds]
    assert "mean size" in done.stdout
    options = ("--key", place.keys / SIGNING_KEY, "--db", place.url, "--file", made)
    assert said("campaign", "create", *options, "--model", MODEL.hex()) == (0, "")

    plan = Plan.from_bytes(wire.SignedPlan.FromString(place.store.campaigns()[0].signed_plan).plan)
    chosen = card.formal["searched"][card.formal["selected"]]
    terms = CentralTerms.of(plan.terms)
    assert (terms.mechanism, terms.bins, terms.grid, terms.epsilon) == (
        chosen["mechanism"],
        chosen["bins"],
        chosen["grid"],
        chosen["epsilon_calibration"],
    )
    assert (plan.alpha, plan.labels, plan.expected_records) == (0.101, 5, 3000)
    now = plan.issued
    owners = [
        owner(tmp_path / str(i), seed=i, n=1000, policy=CENTRAL, now=lambda: now) for i in range(3)
    ]
    outcome = run_campaign(plan, asking(sign_plan(plan, KEY), owners))
    kept = campaign_card(plan, outcome, diagnostic={}, issued=now).sign(KEY)
    assert kept.formal["decision"] == "feasible"
    assert kept.formal["searched"][0]["rank"] == chosen["rank"]
    assert kept.formal["contract"]["coverage"] >= card.formal["contract"]["coverage"]
    assert not broken(kept)


def test_without_records_the_campaign_says_what_is_missing(
    contract: Path, place: Place, tmp_path: Path
) -> None:
    """A search that looked at nothing knows neither labels nor model; `create` names them."""
    made = tmp_path / "campaign.toml"
    found = ("--campaign", made, "--out", tmp_path / "card.json")
    assert command("search", contract, *found).exit_code == 0
    options = ("--key", place.keys / SIGNING_KEY, "--db", place.url, "--file", made)
    assert "missing: labels, model;" in said("campaign", "create", *options)[1]
    known = ("--labels", "5", "--model", MODEL.hex())
    assert said("campaign", "create", *options, *known) == (0, "")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("n = 3000", 'n = 3000\ngrid = ["mixed", "even"]', "grid of a contract is 'even'"),
        ("n = 3000", "n = 6000", "there are 6,000 records, and configuration"),
        ("beta = 1e-3", 'beta = 1e-3\nadjacency = "add-remove"', "campaigns accept replace-one"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(
    contract: Path, tmp_path: Path, old: str, new: str, problem: str
) -> None:
    """A grid whose edges stand in plans only; too few records to measure on; an adjacency that
    campaigns do not have."""
    contract.write_text(CONTRACT_FILE.replace(old, new))
    card, made = tmp_path / "card.json", tmp_path / "campaign.toml"
    words = ("--records", tmp_path / "public.npz", "--campaign", made, "--out", card)
    done = command("search", contract, *words)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert not card.exists()
    assert not made.exists()


def test_records_without_truth_measure_nothing(contract: Path, tmp_path: Path) -> None:
    """Coverage needs labels."""
    np.savez(tmp_path / "blind.npz", probs=np.full((4000, 5), 0.2))
    done = command("search", contract, "--records", tmp_path / "blind.npz")
    assert done.exit_code == 2
    assert "blind.npz has no column 'label'" in done.stderr


def test_what_is_trivial_in_its_runs_hands_nothing_over(contract: Path, tmp_path: Path) -> None:
    """A model that is always wrong: every score is 1. The card says so on top, and it verifies: the
    contract itself could be kept."""
    probs = np.tile(np.eye(5)[0], (4000, 1))
    np.savez(tmp_path / "wrong.npz", probs=probs, labels=np.ones(4000, dtype=int))
    found, made = tmp_path / "card.json", tmp_path / "campaign.toml"
    tried = ("--records", tmp_path / "wrong.npz", "--runs", "1")
    done = command("search", contract, *tried, "--campaign", made, "--out", found)
    assert (done.exit_code, made.exists()) == (1, False)
    assert done.stdout.startswith("TRIVIAL: ")
    assert "no campaign is made of it" in done.stdout
    card = read_card(found)
    assert not [one for one in verify(card, unsigned=True) if not one.holds]
    assert in_words(card, verify(card, unsigned=True)).status == "TRIVIAL"


def test_an_infeasible_contract_hands_nothing_over(contract: Path, tmp_path: Path) -> None:
    """Its card says what would help; there is no campaign to run."""
    contract.write_text(CONTRACT_FILE.replace("coverage = 0.85", "coverage = 0.95"))
    made = tmp_path / "campaign.toml"
    done = command("search", contract, "--campaign", made, "--out", tmp_path / "card.json")
    assert done.exit_code == 1
    assert "higher gamma" in done.stdout
    assert not made.exists()
    assert read_card(tmp_path / "card.json").formal["selected"] is None
