import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from confide.protocol.cards.card import card_schema, parse_card
from confide.protocol.cards.page import as_html, as_markdown
from confide.protocol.cards.verify.card import verify
from confide.protocol.errors import BadInput
from confide.protocol.privacy.amplification import NO_AMPLIFICATION
from confide.protocol.version import CODE_VERSION
from tests.support.cards.cards import CONTRACT, KEY, broken, campaign, make_card
from tests.support.repository.places import ROOT


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"variant": "one-shot"},
        {"variant": "published"},
        {"variant": "published-star"},
        {"max_corrupt": 10},
        {"method": "labels", "variant": "certified"},
        {"method": "labels", "variant": "published-star"},
    ],
)
def test_campaigns_issue_cards_that_verify(tmp_path: Path, changes: dict[str, Any]) -> None:
    """A local-DP campaign of any variant gets the same card, verified from its tallies."""
    card = parse_card(campaign(tmp_path, **changes).to_json())
    assert not broken(card)
    published = changes.get("variant") == "published"
    assert card.formal["decision"] == ("infeasible" if published else "feasible")
    bits = card.formal["certificate"]["method"] == "bits"
    none = "none: reports did not go through a shuffler" if bits else NO_AMPLIFICATION
    assert card.formal["shuffle"] == {"amplification": none}


def test_only_auditors_see_what_depends_on_the_records() -> None:
    """W and the observed inflation are left out of the public view, and a public card that holds
    them does not verify."""
    card = replace(
        make_card(),
        diagnostic={"coverage": 0.9, "width": 0.04, "observed_inflation": 0.02},
        view="auditor",
    )
    assert not broken(card.sign(KEY))
    assert card.public().diagnostic == {"coverage": 0.9}
    assert not broken(card.public().sign(KEY))
    assert broken(replace(card, view="public").sign(KEY)) == ["view"]


def test_the_published_schema_is_one_and_fits() -> None:
    """The schema is valid, accepts what is written and refuses what is not a card."""
    jsonschema.Draft202012Validator.check_schema(card_schema())
    text = make_card().to_json()
    assert parse_card(text).to_json() == text
    for wrong in (
        "",
        "[]",
        "{}",
        text.replace('"marginal"', '"hopeful"'),
        text.replace("0.749", "NaN"),
        text[:-20],
    ):
        with pytest.raises(BadInput, match="accepted"):
            parse_card(wrong)


def test_a_hostile_name_stays_text() -> None:
    """A name with markup in it is shown, not run, and breaks no table."""
    card = make_card(replace(CONTRACT, name="<script>alert(1)</script> | x"))
    page = as_html(card, verify(card))
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "src=" not in page
    assert "http" not in re.sub(r"<svg.*?</svg>", "", page)
    assert "<script" not in as_markdown(card, verify(card))


def test_the_version_on_cards_is_the_projects() -> None:
    """Provenance names the version that pyproject.toml states."""
    assert f'version = "{CODE_VERSION}"' in (ROOT / "pyproject.toml").read_text()
