"""The promise of a card in words, and the interval that its threshold stands for."""

from confide.protocol.cards.card import Layer, strata_of
from confide.protocol.certificate import BAND, BY_OWNER, MARGINAL, PAC
from confide.protocol.errors import BadInput
from confide.protocol.scores.base import CLASSIFICATION, MULTI_LABEL, OWN_LOSS, REGRESSION
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.regression import residual
from confide.protocol.scores.risk import risk


def promise(formal: Layer) -> str:
    """State the promise of a card in a sentence or two."""
    if formal["decision"] == "infeasible":
        return "None: see the verdict."
    contract, released = formal["contract"], formal["released"]
    task = CLASSIFICATION if released is None else released["task"]
    if task in (MULTI_LABEL, OWN_LOSS):
        return _of_risk(contract, released)
    inside = (
        "the predicted interval holds the true number"
        if task == REGRESSION
        else "the predicted set holds the true label"
    )
    share = f"at least {100 * contract['coverage']:.6g} % of new records like the calibrated ones"
    strata = strata_of(formal)
    if strata is not None:
        return _of_each(contract, strata, inside)
    if contract["kind"] == PAC:
        return (
            f"For {share}, {inside}. The calibration fails to deliver that with probability at "
            f"most {contract.get('failure_probability') or contract['delta']:g}."
        )
    if contract["kind"] == BAND:
        return _at_levels(formal, inside)
    return f"On average over calibrations and new records: for {share}, {inside}."


def _at_levels(formal: Layer, inside: str) -> str:
    """State the promise of a band, with the largest coverage that has a threshold below 1."""
    contract, band = formal["contract"], formal["released"]["band"]
    useful = [one["coverage"] for one in band if one["threshold"] < 1]
    return (
        f"At each of {len(band)} thresholds, together, for at least the share of new records like "
        f"the calibrated ones that stands beside it, from {100 * min(useful):.6g} % to "
        f"{100 * max(useful):.6g} %, {inside}; at the one that is published, for at least "
        f"{100 * contract['coverage']:.6g} %. The calibration fails to deliver any of that with "
        f"probability at most {contract['delta']:g}, so a threshold may be chosen later."
    )


def _of_risk(contract: Layer, released: Layer) -> str:
    """State the promise of a bounded risk: coverage is one minus the expected loss."""
    loss = risk(find_score(released["score"])).loss_name
    most = f"is at most {100 * (1 - contract['coverage']):.6g} %"
    if contract["kind"] != MARGINAL:
        return (
            f"On average over new records like the calibrated ones, {loss} {most}. The "
            "calibration fails to deliver that with probability at most "
            f"{contract.get('failure_probability') or contract['delta']:g}."
        )
    return f"On average over calibrations and new records, {loss} {most}."


def _of_each(contract: Layer, strata: Layer, inside: str) -> str:
    """State the promise of a threshold for each class, owner or group."""
    whom, parts = strata["by"], strata["parts"]
    if "together" in strata:
        return _of_all(contract, strata, inside)
    share = f"at least {100 * contract['coverage']:.6g} % of new records"
    trivial = sum(part["threshold"] >= 1 for part in parts)
    shift = " Label frequencies may change: it holds given the label." if whom == "class" else ""
    rest = f" {trivial} of {len(parts)} have threshold 1, which covers anything." if trivial else ""
    if contract["kind"] != PAC:
        return (
            f"On average over calibrations and new records, in every {whom}, for {share} like the "
            f"calibrated ones, {inside}.{shift}{rest}"
        )
    fails = "any of them" if strata.get("joint") else f"each {whom}, on its own, not jointly,"
    failure = contract.get("failure_probability") or contract["delta"]
    return (
        f"In every {whom}, for {share} like the calibrated ones, {inside}. The calibration fails "
        f"to deliver that for {fails} with probability at most {failure:g}.{shift}{rest}"
    )


def _of_all(contract: Layer, strata: Layer, inside: str) -> str:
    """State the promise of one threshold that holds in every part."""
    whom, parts = strata["by"], strata["parts"]
    out = [part["name"] for part in parts if not part.get("covered", True)]
    share = f"at least {100 * contract['coverage']:.6g} % of new records"
    rest = f" Not covered, for too few reports: {whom} {', '.join(out[:20])}." if out else ""
    more = f" and {len(out) - 20} more" if len(out) > 20 else ""
    return (
        f"At every {whom} that is covered, {len(parts) - len(out)} of {len(parts)}, for {share} "
        f"like those of the same {whom}, {inside}. The calibration fails to deliver that for any "
        f"of them with probability at most {contract['delta']:g}.{rest}{more}"
    )


def within_parts(formal: Layer) -> str:
    """What a promise for all records, or for all of a part, does not say of some of them."""
    strata = strata_of(formal)
    if strata is None:
        return "Coverage for every class, owner or group: the promise is for all records together."
    if strata["by"] == BY_OWNER:
        return "Coverage for a part of an owner's records: the promise is for all that it has."
    return f"Coverage for a part of a {strata['by']}: the promise is for all of its records."


def interval(formal: Layer) -> tuple[tuple[str, str], ...]:
    """The interval that the threshold stands for, in the unit of the numbers that are predicted."""
    released = formal["released"]
    if released is None or released["task"] != REGRESSION:
        return ()
    reach = released.get("reach")
    try:
        score = residual(find_score(released["score"]))
    except BadInput:
        # The card does not verify, which its page says.
        return ()
    if reach is None:
        return (("Interval", "The whole line: the threshold is 1, which rules nothing out."),)
    return (
        (
            "Interval",
            f"From what the model returns: {score.in_words(reach)}, in the target's own unit "
            f"(threshold {released['threshold']:.4g} of the public bound {score.bound:g}).",
        ),
    )
