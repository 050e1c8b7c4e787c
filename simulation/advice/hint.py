"""What an evaluation says at its end: another method that owners would allow has smaller sets."""

from typing import Any

from confide.protocol.methods.labels.terms import CLASS_CONDITIONAL
from confide.protocol.methods.owner_terms import PART_VARIANTS
from confide.protocol.scores.registry import find_score
from confide.simulation.advice.candidates import CANDIDATES, Case
from confide.simulation.advice.curves import curve_of
from confide.simulation.advice.question import FEWEST_RECORDS, AdviceQuestion
from confide.simulation.data.population import Predictions

# What must be allowed for the method that was evaluated, and so is allowed for another.
_ALLOWED: dict[str, dict[str, Any]] = {
    "bits": {"owner_has_model": True},
    "labels": {"owner_has_model": True, "features_may_leave": True},
    "central": {"owner_has_model": True, "trusted_aggregator": True},
}
# What is not compared: no privacy, and promises for owners, groups or labels: they cost more.
UNLIKE = ("non-private", CLASS_CONDITIONAL, *PART_VARIANTS)
# A share of the size that is worth a line.
MATTERS = 0.05


def hint(records: Any, result: dict[str, Any]) -> str | None:
    """The line, or None if no other method's sets are at least 5 % smaller.

    `result` is what `run_trials` returns.
    """
    given, size = result["arguments"], result["mean"]["mean_size"]
    own = result["trials"][0].get("certificate", {}).get("by")
    plain = given["variant"] in UNLIKE or given.get("max_corrupt") or own
    if not isinstance(records, Predictions) or given["method"] not in _ALLOWED or plain:
        return None
    if not find_score(str(given["score"])).task.of_labels:
        return None
    if given["n"] < FEWEST_RECORDS or given["alpha"] >= 0.5 or not size:
        return None
    asked = AdviceQuestion(
        records=given["n"],
        alpha=given["alpha"],
        failure_probability=given.get("failure_probability") or 0.1,
        epsilon=given["epsilon"],
        **_ALLOWED[given["method"]],
    )
    case = Case(curve_of(records, given["score"]), asked, given["n"], given["epsilon"])
    own = f"{given['method']}:{given['variant']}"
    others = {
        one.name: float(case.curve.size(one.law(case, one.few)).mean())
        for one in CANDIDATES
        if one.refusal(asked) is None and one.name != own and not one.needs_trust
    }
    name, least = min(others.items(), key=lambda pair: pair[1], default=("", size))
    if least > (1 - MATTERS) * size:
        return None
    return (
        f"{name} would give {least:.1f} at the same epsilon (expected; `confide advise` says more)"
    )
