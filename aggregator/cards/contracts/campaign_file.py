"""The campaign that runs a selected configuration, as a file of settings for `campaign create`."""

import json
from typing import Any

from confide.aggregator.cards.contracts.contract import decimal
from confide.aggregator.quantiles.base import REPLACE_ONE
from confide.aggregator.quantiles.registry import needs_delta
from confide.protocol.cards.card import Layer
from confide.protocol.errors import BadInput
from confide.protocol.methods.counts.central import OWNER_NOISED, TRUSTED, CentralTerms


def campaign_settings(formal: Layer) -> dict[str, Any]:
    """Return the settings that the selected configuration fixes.

    A campaign has the adjacency replace-one, and owners add as much noise as its epsilon needs.
    """
    contract, entry = formal["contract"], formal["searched"][formal["selected"]]
    if contract["adjacency"] != REPLACE_ONE:
        raise BadInput(
            f"the contract's adjacency is {contract['adjacency']}; campaigns accept {REPLACE_ONE}"
        )
    if entry["noise_variance"]:
        raise BadInput(
            f"noise_variance is {entry['noise_variance']}; in campaigns it follows from epsilon, "
            "so accepted is a grid without it"
        )
    noised = entry["noised_by"] == "owners"
    settings = {
        "campaign": f"{CentralTerms.method}:{OWNER_NOISED if noised else TRUSTED}",
        "title": contract["name"],
        "records": entry["n"],
        "alpha": float(1 - decimal(entry["gamma"]) + decimal(contract["beta"])),
        "beta": contract["beta"],
        "epsilon": entry["epsilon_calibration"],
        "bins": entry["bins"],
        "grid": entry["grid"],
    }
    if noised:
        settings |= {"owners": entry["owners"], "privacy-delta": entry["delta_calibration"]}
    else:
        settings |= {"mechanism": entry["mechanism"]}
        if needs_delta(entry["mechanism"]):
            settings |= {"privacy-delta": entry["delta_calibration"]}
    return settings


def campaign_text(formal: Layer, settings: dict[str, Any]) -> str:
    """Write settings as TOML, with a note of what the contract left to others."""
    contract, entry = formal["contract"], formal["searched"][formal["selected"]]
    lines = [
        f"# Configuration {formal['selected']} of {len(formal['searched'])}, for coverage "
        f"{contract['coverage']:g}; its guaranteed coverage is {entry['level']:g}.",
    ]
    if entry["epsilon_train"]:
        lines.append(
            f"# The model's training may have cost epsilon {entry['epsilon_train']:g} at delta "
            f"{entry['delta_train']:g}; this campaign calibrates only."
        )
    lines += [f"{name} = {_toml(value)}" for name, value in settings.items()]
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    # Strings of JSON are strings of TOML, and floats of Python are floats of TOML.
    return json.dumps(value) if isinstance(value, str) else repr(value)
