"""Cards written for model cards and for a registry of deployments."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from confide.protocol.cards.card import Card
from confide.protocol.exact.sampling import SEEDED
from tests.support.cards.campaign_cards import counted, forged, issued
from tests.support.cards.cards import KEY, campaign, command, make_card
from tests.support.cards.central import NOISED, TRUSTED
from tests.support.cards.full_data import made


@pytest.fixture(scope="module")
def cards(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Card]:
    rng = np.random.default_rng(5)
    return {
        "bits": campaign(tmp_path_factory.mktemp("bits")),
        "trusted": issued(TRUSTED, counted(TRUSTED, rng)),
        "owner-noised": issued(NOISED, counted(NOISED, rng)),
        "full-data": made(),
    }


def export(card: Card, folder: Path, *arguments: Any) -> Any:
    path = folder / "card.json"
    path.write_text(card.to_json())
    return command("export", path, *arguments)


@pytest.mark.parametrize("track", ["bits", "trusted", "owner-noised", "full-data"])
def test_a_registry_entry_says_what_the_card_says(
    track: str, cards: dict[str, Card], tmp_path: Path
) -> None:
    """It is YAML with the registry's parts; epsilon, delta, unit and model are the card's."""
    card = cards[track]
    done = export(card, tmp_path, "--as", "registry", "--curator", 'North "&" South: 1')
    assert done.exit_code == 0, done.output
    entry = yaml.safe_load(done.stdout)["deployment"]
    assert entry["basic"]["data_curators"][0]["data_curator_name"] == 'North "&" South: 1'
    assert entry["basic"]["intended_use"] == "TO BE FILLED IN"
    assert entry["privacy_loss"]["privacy_unit"] == "record"
    spent = entry["privacy_loss"]["privacy_parameters"]
    delta = {"owner-noised": 1e-6, "full-data": 1e-5}.get(track)
    assert spent.get("delta") == delta
    assert (entry["dp_variant"]["variant_name"] == "Pure DP") == (delta is None)
    total = card.formal["certificate" if track == "bits" else "total"]["epsilon"]
    assert spent["epsilon"] == total
    local = track in ("bits", "owner-noised")
    assert entry["deployment_model"]["model_name"] == ("Local" if local else "Central")


def test_a_model_card_has_verdict_threshold_and_code(
    cards: dict[str, Card], tmp_path: Path
) -> None:
    """The section is written to a file, and holds what a user needs to predict."""
    out = tmp_path / "README.md"
    done = export(cards["bits"], tmp_path, "--out", out)
    assert done.exit_code == 0, done.output
    text = out.read_text()
    assert text.startswith("## Prediction sets with coverage 0.9\n\n**CERTIFIED**")
    assert repr(cards["bits"].formal["released"]["threshold"]) in text
    assert "Predictor.from_card" in text


@pytest.mark.parametrize("form", ["model-card", "registry"])
def test_nothing_is_exported_that_nobody_may_rely_on(
    form: str, cards: dict[str, Card], tmp_path: Path
) -> None:
    """A lie, another signer, a simulation, a search without release: one line, code 2, no file."""
    out, other = tmp_path / "out.md", "00" * 32
    lie = forged(cards["trusted"], (("contract", "coverage"), 0.95))
    seeded = campaign(tmp_path / "seeded", randomness=SEEDED)
    for card, more, says in (
        (lie, (), "does not verify"),
        (cards["bits"], ("--key", other), "does not verify (signer)"),
        (seeded, (), "the card is simulation"),
        (make_card(), (), "nothing was released"),
        (cards["bits"], ("--as", "poem"), "accepted: model-card, registry"),
    ):
        arguments = more if "--as" in more else ("--as", form, *more)
        done = export(card, tmp_path, *arguments, "--out", out)
        assert (done.exit_code, done.output.count("\n")) == (2, 1), done.output
        assert says in done.output
        assert not out.exists()
    mine = KEY.public_key().public_bytes_raw().hex()
    assert export(cards["bits"], tmp_path, "--key", mine).exit_code == 0
