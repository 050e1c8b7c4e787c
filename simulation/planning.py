"""Plans of campaigns from the settings that matter, with defaults for all others."""

import hashlib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confide.aggregator.campaigns.planning.plans import (
    check_delta_used,
    check_groups_used,
    make_plan,
    valid_from,
)
from confide.aggregator.campaigns.planning.provider_files import with_provider_files
from confide.aggregator.campaigns.planning.settings import KINDS, belongs, check_used, promising
from confide.protocol.errors import BadInput
from confide.protocol.plan import Plan
from confide.simulation.defaults import run_defaults

# Settings of every campaign, besides those that are arguments of their own.
COMMON = ("score", "epsilon", "alpha", "minimum-reports", "minimum-owners", "owners")
NO_MODEL = bytes(32)


def plan(
    campaign: str,
    *,
    records: int,
    labels: int = 0,
    model: Path | str | bytes | None = None,
    title: str = "",
    days: float = 30.0,
    **settings: Any,
) -> Plan:
    """Make the plan of a campaign `method:variant`, such as `bits:certified`.

    `records` is the number expected of all owners, `labels` that of the classes (0 for a score of
    numbers). `model` is an ONNX file, or its SHA-256 as bytes. `settings` are `score`, `epsilon`,
    `alpha`, `minimum_reports`, `minimum_owners`, `owners` (expected, for the numbers of a training
    that are `auto`) and the method's own, as in `calibrate`; those not given have the defaults of a
    federation. `sign_plan` signs the plan, `run_campaign` runs it.
    """
    given = {key.replace("_", "-"): value for key, value in settings.items()}
    only = belongs()
    unknown = next((key for key in given if key not in {*COMMON, *only}), None)
    if unknown is not None:
        asked = {*promising([campaign]), campaign.partition(":")[0]}
        own = [key for key, owners in only.items() if asked & {*owners} and key in KINDS]
        accepted = ", ".join(key.replace("-", "_") for key in sorted({*COMMON, *own}))
        raise BadInput(
            f"{unknown.replace('-', '_')} is no setting of {campaign}; accepted: {accepted}"
        )
    check_used(given, promising([campaign], given.get("guarantee")), only)
    fixed = {"records": records, "labels": labels, "model": model_digest(model).hex()}
    usual = {"minimum-reports": 0, "minimum-owners": 1, "train-share": 0.0}
    config, _ = with_provider_files(run_defaults() | usual | given | fixed)
    valid = valid_from(datetime.now(UTC), days=days)
    made = make_plan(campaign, config, title=title or campaign, valid=valid)
    check_delta_used(given.get("privacy-delta"), [made])
    check_groups_used(given.get("groups"), made)
    return made


def model_digest(model: Path | str | bytes | None) -> bytes:
    """Return the SHA-256 of a model's file, or the digest itself; zeros if there is none."""
    if model is None or isinstance(model, bytes):
        return model or NO_MODEL
    try:
        return hashlib.sha256(Path(model).read_bytes()).digest()
    except OSError as error:
        raise BadInput(f"model {model} cannot be read: {error.strerror}") from None
