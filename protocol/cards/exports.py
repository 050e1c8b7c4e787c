"""A card for other places: a section of a model card, and an entry of a registry of deployments.

The section is Markdown for the README of a model (Mitchell et al. 2019; Hugging Face shows it). The
entry has the fields of the Differential Privacy Deployments Registry (Nanayakkara, Ghazi and Vadhan
2025) that a card can fill; people fill the others, which are named.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from confide.protocol.cards.card import Card, Layer
from confide.protocol.cards.tracks.registry import track_of
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.cards.words.in_clear import in_clear
from confide.protocol.cards.words.in_words import campaign_name, counted_owners, in_words, spent
from confide.protocol.cards.words.signer_words import KEY_IS
from confide.protocol.certificate import WATCH
from confide.protocol.commands.terminal import printable
from confide.protocol.errors import BadInput

OPEN = "TO BE FILLED IN"


@dataclass(frozen=True)
class Curator:
    """Who deploys a calibration, and for what: the part of an entry that no card knows."""

    name: str = ""
    sector: str = ""
    use: str = ""


def exported(card: Card, findings: list[Finding], *, form: str, curator: Curator) -> str:
    """Write a card in one of FORMS, if it verifies and keeps its contract."""
    broken = [finding.clause for finding in findings if not finding.holds]
    if broken:
        raise BadInput(f"the card does not verify ({', '.join(broken)}); accepted is one that does")
    if card.formal["contract"]["kind"] == WATCH:
        raise BadInput("the card is of a monitor; accepted is the card of a calibration")
    if card.formal["decision"] != "feasible" or card.formal["released"] is None:
        raise BadInput(
            f"the card is {card.formal['decision']}"
            f"{'' if card.formal['released'] else ', and nothing was released'}; accepted is the "
            "card of a calibration that keeps its contract"
        )
    return FORMS[form](card, findings, curator)


def model_card(card: Card, findings: list[Finding], _: Curator) -> str:
    """Write the section of a model's README."""
    words, released = in_words(card, findings), card.formal["released"]
    rows = {
        "Score": released["score"],
        "Threshold": repr(released["threshold"]),
        "SHA-256 of the model": released["model"],
        "Signed by": card.key.hex(),
    }
    return "\n".join(
        [
            f"## {words.title}",
            "",
            f"**{words.status}**: {_text(words.sentence)}",
            "",
            *(f"- **{name}**: {_text(text)}" for name, text in words.rows),
            "- **Not promised**:",
            *(f"    - {_text(text)}" for text in words.not_promised),
            "",
            "| | |",
            "|---|---|",
            *(f"| {name} | `{_text(value)}` |" for name, value in rows.items()),
            "",
            "```python",
            *([f"# {KEY_IS}"] if "KEY" in words.use else []),
            words.use,
            "```",
            "",
        ]
    )


def registry(card: Card, _: list[Finding], curator: Curator) -> str:
    """Write the entry of a registry, as YAML."""
    formal, contract = card.formal, card.formal["contract"]
    epsilon, delta = spent(formal)
    track = track_of(formal)
    parameters = {"epsilon": epsilon} | ({"delta": delta} if delta else {})
    entry = {
        "deployment": {
            "basic": _basic(card, curator),
            "dp_variant": {
                "variant_name": "Approximate DP" if delta else "Pure DP",
                "unprotected_quantities": _unprotected(formal),
            },
            "privacy_loss": {
                "privacy_unit": contract["unit"],
                "privacy_unit_details": f"Neighbouring data sets: {contract['adjacency']}.",
                "privacy_parameters": parameters,
            },
            "deployment_model": {
                "model_name": "Local" if track.noised_by_owners(formal) else "Central",
                "release_type": "Single release",
                "access_type": "Non-interactive",
            },
            "implementation": {
                "mechanisms": track.mechanism(formal),
                "composition": _composition(formal),
                "post_processing": "Predictions are made with the released threshold.",
            },
            "administrative": {
                "evidence_sources": {
                    "contract_card": {
                        "evidence_source_type": "Contract card of Confide, signed",
                        "misc": {"key": card.key.hex(), "plan": card.provenance["plan"]},
                    }
                },
                "status": "Pending",
            },
        }
    }
    return "\n".join(_yaml(entry)) + "\n"


FORMS: dict[str, Callable[[Card, list[Finding], Curator], str]] = {
    "model-card": model_card,
    "registry": registry,
}


def _basic(card: Card, curator: Curator) -> Layer:
    contract = card.formal["contract"]
    return {
        "name": printable(campaign_name(card)),
        "data_curators": [
            {
                "data_curator_name": curator.name or OPEN,
                "data_curator_type": curator.sector or OPEN,
            }
        ],
        "description": (
            f"A threshold of conformal prediction with coverage {contract['coverage']:g} "
            f"({contract['kind']}), calibrated on records of {_owners(card)}."
        ),
        "intended_use": curator.use or OPEN,
        "data_product_type": "Threshold of a machine-learning model",
        "publication_date": card.provenance["issued"][:10],
    }


def _owners(card: Card) -> str:
    counted = card.provenance.get("contributors")
    return "one place" if counted is None else counted_owners(counted["owners"], "data owner")


def _composition(formal: Layer) -> str:
    if "chain" in formal:
        return f"Training and calibration: {formal['chain']['records']}"
    return track_of(formal).composition(formal)


def _unprotected(formal: Layer) -> str:
    clear = [f"{one[:1].upper()}{one[1:]} left in clear." for one in in_clear(formal)]
    return " ".join([*clear, "The numbers of records and of owners are public."])


def _yaml(value: Any, depth: int = 0) -> Iterator[str]:
    """Yield lines of YAML; strings are written as in JSON, which is YAML too."""
    pad = "  " * depth
    for name, inner in value.items():
        if isinstance(inner, dict):
            yield f"{pad}{name}:"
            yield from _yaml(inner, depth + 1)
        elif isinstance(inner, list):
            yield f"{pad}{name}:"
            for item in inner:
                first, *rest = _yaml(item, depth + 2)
                yield f"{pad}  - {first.strip()}"
                yield from rest
        else:
            yield f"{pad}{name}: {_scalar(inner)}"


def _scalar(value: Any) -> str:
    """Write a scalar as in JSON, and 1e-05 with the point that YAML 1.1 wants in a number."""
    written = json.dumps(value)
    pointless = isinstance(value, float) and "e" in written and "." not in written
    return written.replace("e", ".0e") if pointless else written


def _text(text: str) -> str:
    return printable(text).replace("|", "\\|").replace("<", "&lt;")
