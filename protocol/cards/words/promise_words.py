"""The promise of a card in words, and the interval that belongs to its threshold."""

from confide.protocol.cards.card import Layer, named, strata_of, uncovered
from confide.protocol.certificate import BAND, BY_OWNER, EQUAL_OWNERS, MARGINAL
from confide.protocol.errors import BadInput
from confide.protocol.scores.registry import find_score
from confide.protocol.scores.regression import residual
from confide.protocol.scores.risk import risk
from confide.protocol.scores.task import CLASSIFICATION, TASKS, Task

# What new records are like where every owner counts as much as any other.
DRAWN = "those of an owner of the first round that is drawn at random, large or small"


def promise(formal: Layer) -> str:
    """State the promise of a card in a sentence or two."""
    if formal["decision"] == "infeasible":
        return "None: see the verdict."
    contract, strata = formal["contract"], strata_of(formal)
    if strata is not None:
        return _of_each(formal, strata)
    equal = EQUAL_OWNERS in formal.get("certificate", {}).get("assumptions", [])
    held = _held(formal, DRAWN if equal else "the calibrated ones")
    if contract["kind"] == BAND and not task_of_card(formal).of_risk:
        return _at_levels(formal)
    if contract["kind"] != MARGINAL:
        return (
            f"{held[0].upper()}{held[1:]}. The calibration fails to deliver that with probability "
            f"at most {contract.get('failure_probability') or contract['delta']:g}."
        )
    return f"On average over calibrations and new records, {held}."


def _held(formal: Layer, like: str) -> str:
    """What holds for new records like those: coverage, or a bound of the expected loss of a risk.

    Coverage is one minus the expected loss.
    """
    contract = formal["contract"]
    if task_of_card(formal).of_risk:
        loss = risk(find_score(formal["released"]["score"])).loss_name
        once = contract["kind"] != MARGINAL
        average = f"on average over new records like {like}, " if once else ""
        return f"{average}{loss} is at most {100 * (1 - contract['coverage']):.6g} %"
    share = f"at least {100 * contract['coverage']:.6g} % of new records"
    return f"for {share} like {like}, {_inside(formal)}"


def task_of_card(formal: Layer) -> Task:
    """The task of what was released; labels if nothing was, or the card names no task."""
    released = formal["released"]
    return CLASSIFICATION if released is None else TASKS.get(released["task"], CLASSIFICATION)


def _inside(formal: Layer) -> str:
    if task_of_card(formal).of_numbers:
        return "the predicted interval holds the true number"
    return "the predicted set holds the true label"


def _at_levels(formal: Layer) -> str:
    """State the promise of a band, with the largest coverage that has a threshold below 1."""
    contract, band = formal["contract"], formal["released"]["band"]
    useful = [one["coverage"] for one in band if one["threshold"] < 1]
    return (
        f"At each of {len(band)} thresholds, together, for at least the share of new records like "
        f"the calibrated ones that stands beside it, from {100 * min(useful):.6g} % to "
        f"{100 * max(useful):.6g} %, {_inside(formal)}; at the one that is published, for at least "
        f"{100 * contract['coverage']:.6g} %. The calibration fails to deliver any of that with "
        f"probability at most {contract['delta']:g}, so a threshold may be chosen later."
    )


def _of_each(formal: Layer, strata: Layer) -> str:
    """State the promise of a threshold for each class, owner or group."""
    contract, whom, parts = formal["contract"], strata["by"], strata["parts"]
    if "together" in strata:
        return _of_all(formal, strata)
    held = f"in every {whom}, {_held(formal, 'the calibrated ones')}"
    trivial = sum(part["threshold"] >= 1 for part in parts)
    shift = " Label frequencies may change: it holds given the label." if whom == "class" else ""
    rest = f" {trivial} of {len(parts)} have threshold 1, which covers anything." if trivial else ""
    if contract["kind"] == MARGINAL:
        return f"On average over calibrations and new records, {held}.{shift}{rest}"
    fails = "any of them" if strata.get("joint") else f"each {whom}, on its own, not jointly,"
    failure = contract.get("failure_probability") or contract["delta"]
    return (
        f"{held[0].upper()}{held[1:]}. The calibration fails to deliver that for {fails} with "
        f"probability at most {failure:g}.{shift}{rest}"
    )


def _of_all(formal: Layer, strata: Layer) -> str:
    """State the promise of one threshold that holds in every part."""
    whom, parts = strata["by"], strata["parts"]
    out = uncovered(strata)
    rest = f" Not covered, for too few reports: {whom} {named(out)}." if out else ""
    return (
        f"At every {whom} that is covered, {len(parts) - len(out)} of {len(parts)}, "
        f"{_held(formal, f'those of the same {whom}')}. The calibration fails to deliver that for "
        f"any of them with probability at most {formal['contract']['delta']:g}.{rest}"
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
    """The interval that belongs to the threshold, in the unit of the predicted numbers."""
    released = formal["released"]
    if not task_of_card(formal).of_numbers:
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
