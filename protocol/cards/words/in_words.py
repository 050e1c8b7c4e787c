"""A card in words: what a reader who is no engineer needs first, and what is not promised."""

import math
import re
from dataclasses import dataclass

from confide.protocol.cards.card import INFORMATIVE, RANDOMNESS, Card, Layer
from confide.protocol.cards.tracks.registry import track_of
from confide.protocol.cards.verify.findings import Finding
from confide.protocol.cards.words.in_clear import beside_epsilon, not_protected
from confide.protocol.cards.words.plain_names import in_text
from confide.protocol.cards.words.promise_words import (
    interval,
    promise,
    task_of_card,
    within_parts,
)
from confide.protocol.cards.words.signer_words import checked
from confide.protocol.cards.words.watch_words import (
    NOT_PROMISED,
    QUIET,
    watch_promise,
    watch_sentence,
    watch_status,
    watch_title,
)
from confide.protocol.certificate import MARGINAL, WATCH
from confide.protocol.privacy.odds import worst_odds

# The status of a card, as its heading shows it.
SIMULATION, TRIVIAL, FAILED = "SIMULATION ONLY", "TRIVIAL", "NOT GUARANTEED"
CERTIFIED, ON_AVERAGE, KEPT = "CERTIFIED", "GUARANTEED ON AVERAGE", "CAN BE KEPT"
UNVERIFIED = "DOES NOT VERIFY"

# Campaigns without a title are told apart by the number of a run, or by the time.
RUN_NUMBER = re.compile(r" \d{10,}$")

_FAILED = {INFORMATIVE: "informative (the threshold is 1, which predicts everything)"}


@dataclass(frozen=True)
class InWords:
    """The first page of a card.

    `title` says what it is about, `status` and `sentence` are the verdict, and `rows` answer what a
    privacy officer asks. `use` is the code that predicts with it; it is empty if nothing was
    released.
    """

    title: str
    status: str
    sentence: str
    rows: tuple[tuple[str, str], ...]
    use: str
    not_promised: tuple[str, ...]

    @property
    def good(self) -> bool:
        return self.status in (CERTIFIED, ON_AVERAGE, KEPT, QUIET)


def in_words(card: Card, findings: list[Finding], *, own_key: bool = False) -> InWords:
    """Say what a card means, given what its verification found.

    With `own_key` it was verified under the key of the server that shows it.
    """
    formal = card.formal
    broken = [finding.clause for finding in findings if not finding.holds]
    sentence = _sentence(card)
    status = _status(card)
    if broken:
        sentence = f"{', '.join(broken)}. What it says: {status}: {sentence}"
    return InWords(
        title(card),
        UNVERIFIED if broken else status,
        sentence[:1].upper() + sentence[1:],
        (
            ("Promise", watch_promise(formal) if _watches(formal) else promise(formal)),
            *interval(formal),
            ("Privacy", _privacy(formal)),
            ("Took part", _took_part(card)),
            ("Checked", checked(card, findings, own_key=own_key)),
            *_assumes(formal),
        ),
        _use(formal),
        _not_promised(card),
    )


def title(card: Card) -> str:
    """Name what a card is about, without the numbers that tell campaigns apart."""
    if _watches(card.formal):
        return watch_title(card.formal)
    released, coverage = card.formal["released"], card.formal["contract"]["coverage"]
    if released is None:
        return f"Contract for {coverage:.4g} coverage"
    task = task_of_card(card.formal)
    if task.of_risk:
        return f"{released['score'].partition(' ')[0].capitalize()} of at most {1 - coverage:.4g}"
    what = "intervals" if task.of_numbers else "sets"
    return f"Prediction {what} with coverage {coverage:.4g}"


def _watches(formal: Layer) -> bool:
    """Whether the card is of a monitor, which promises no coverage."""
    return bool(formal["contract"]["kind"] == WATCH)


def campaign_name(card: Card) -> str:
    """The name of the campaign or contract, without the number that a run was given at its end."""
    name: str = card.formal["contract"]["name"]
    return RUN_NUMBER.sub("", name) or name


def headline(card: Card) -> str:
    """State the decision in one sentence."""
    return f"{_status(card)}: {_sentence(card)}"


def verdict(card: Card, findings: list[Finding]) -> str:
    """State the decision; if a clause does not verify, only as what the card says."""
    broken = [finding.clause for finding in findings if not finding.holds]
    if not broken:
        return headline(card)
    return f"{UNVERIFIED} ({', '.join(broken)}). What it says: {headline(card)}"


def _status(card: Card) -> str:
    formal = card.formal
    if formal["decision"] == "simulation":
        return SIMULATION
    if _watches(formal):
        return watch_status(formal)
    if formal["decision"] != "feasible":
        return TRIVIAL if formal["failed"] == [INFORMATIVE] else FAILED
    if formal["released"] is None:
        return TRIVIAL if trivial_in_runs(formal, card.diagnostic) else KEPT
    return ON_AVERAGE if formal["contract"]["kind"] == MARGINAL else CERTIFIED


def _sentence(card: Card) -> str:
    formal = card.formal
    if _watches(formal):
        return watch_sentence(formal)
    contract, margin = formal["contract"], formal["margin"]
    asked = f"coverage {contract['coverage']:g} ({contract['kind']})"
    if task_of_card(formal).of_risk:
        asked = f"an expected loss of at most {1 - contract['coverage']:g} ({contract['kind']})"
    others = [_FAILED.get(name, in_text(name)) for name in formal["failed"] if name != RANDOMNESS]
    if formal["decision"] == "simulation":
        rest = (
            f"; besides, failed: {', '.join(others)}"
            if others
            else f"; else {asked} would be guaranteed"
        )
        return f"randomness was not the operating system's, so nothing is private{rest}."
    if formal["decision"] == "feasible":
        if formal["released"] is None:
            but = "; but it predicted everything when it was run"
            return (
                f"a configuration keeps {asked}{_spare(margin)}: {_chosen(formal)}"
                f"{but if trivial_in_runs(formal, card.diagnostic) else ''}."
            )
        counted = card.provenance.get("contributors")
        unless = "" if counted is None else f"; {counted['if_the_largest_lied']}"
        return f"{asked} is guaranteed{_spare(margin)}{unless}."
    by = "" if not margin else f" (margin {margin:.4g})"
    if "promise" in formal and "certified" in formal["failed"]:
        by = f" (what is known: {formal['promise']['status']})"
    return f"{asked} is not guaranteed; failed: {', '.join(others)}{by}."


def _spare(margin: float) -> str:
    """Say by how much more than was asked is guaranteed, if it is more."""
    return f", with a margin of {margin:.4g}" if margin else ""


def _chosen(formal: Layer) -> str:
    """Name the selected configuration of a search."""
    entry = formal["searched"][formal["selected"]]
    return (
        f"{entry['mechanism']} at epsilon {entry['epsilon_calibration']:g} on {entry['n']:,} "
        f"records, {entry['bins']:,} {entry['grid']} bins, gamma {entry['gamma']:g}"
    )


def trivial_in_runs(formal: Layer, diagnostic: Layer) -> bool:
    """Whether the selected configuration of a search had the threshold 1 in all of its runs."""
    row = _selected_row(formal, diagnostic)
    return row is not None and row["threshold"] >= 1


def _selected_row(formal: Layer, diagnostic: Layer) -> Layer | None:
    rows = diagnostic.get("evaluated", [])
    return next((one for one in rows if one["configuration"] == formal["selected"]), None)


def spent(formal: Layer) -> tuple[float | None, float]:
    """Return the epsilon and delta that a record paid: both together, if it also trained."""
    if "chain" in formal:
        return formal["chain"]["epsilon"], formal["chain"]["delta"]
    return track_of(formal).spent(formal)


def _privacy(formal: Layer) -> str:
    if formal["decision"] == "simulation":
        return "None: the noise can be drawn again by anybody."
    epsilon, delta = spent(formal)
    if epsilon is None:
        return "No budget was spent."
    # Nothing was asked of anybody yet if there is no release.
    verb = "It would cost" if formal["released"] is None else "It cost"
    said = (
        f"{verb} epsilon {math.ceil(epsilon * 1e4) / 1e4:g} a {formal['contract']['unit']}: if "
        "someone guessed 50 : 50 about one, all that is published can move them to at most "
        f"{worst_odds(epsilon)}."
    )
    if delta:
        said += f" With probability up to {delta:g} that bound does not hold."
    entries = formal.get("searched")
    if entries and entries[0]["noised_by"] == "aggregator" and formal["released"] is not None:
        said += " The aggregator itself saw exact counts."
    return said + beside_epsilon(formal)


def _took_part(card: Card) -> str:
    counted = card.provenance.get("contributors")
    if counted is None:
        if card.formal["released"] is None:
            return f"Nobody yet: no owner was asked.{_tried(card)}"
        return "Not stated: no campaign of owners stands behind this card."
    unit = track_of(card.formal).counted
    said = (
        f"{counted_owners(counted['owners'])} with {counted['of']:,} {unit}; the largest had "
        f"{counted['largest']:,}."
    )
    left_out = [one["too_few"] for one in counted.get("rounds", [])]
    if any(left_out):
        rounds = sum(map(bool, left_out))
        said += (
            f" {rounds} of {len(left_out)} rounds left out up to {counted_owners(max(left_out))} "
            "with too few records in the slice."
        )
    return said


def counted_owners(number: int, name: str = "owner") -> str:
    return f"{number:,} {name}{'' if number == 1 else 's'}"


def _tried(card: Card) -> str:
    """Say on what, and with what result, the selected configuration was run."""
    row = _selected_row(card.formal, card.diagnostic)
    if row is None:
        return ""
    size = "unbounded" if row["mean_size"] is None else f"{row['mean_size']:.2f}"
    return (
        f" Run {row['runs']} times on {card.diagnostic['records']:,} records that may be looked "
        f"at: coverage {row['coverage']:.3f}, mean size {size}. Those records are not protected."
    )


def _assumes(formal: Layer) -> tuple[tuple[str, str], ...]:
    """The assumptions that the certificate itself names."""
    named = formal.get("certificate", {}).get("assumptions", [])
    return (("Assumes that", "; ".join(named) + "."),) if named else ()


def _use(formal: Layer) -> str:
    released = formal["released"]
    if released is None or formal["decision"] == "infeasible" or _watches(formal):
        return ""
    task = task_of_card(formal)
    if not (task.of_labels or task.of_numbers):
        return f"{released['threshold']:.6g}  # the value of your own parameter"
    verb = "predict_interval" if task.of_numbers else "predict_set"
    accepted = ", simulation=True" if formal["decision"] == "simulation" else ""
    return f'confide.Predictor.from_card("card.json", key=KEY{accepted}).{verb}(results)'


def _not_promised(card: Card) -> tuple[str, ...]:
    """Say what a reader might take for promised and is not."""
    formal = card.formal
    if _watches(formal):
        return NOT_PROMISED
    said = [
        within_parts(formal),
        "Coverage of records that differ from those that were calibrated on.",
    ]
    said += not_protected(formal)
    if formal["contract"]["kind"] == MARGINAL:
        said.append("Coverage of this one calibration: the promise is an average over many.")
    if gone := card.diagnostic.get("departure"):
        said.append(f"Coverage at owners that were not there: {gone}.")
    counted = card.provenance.get("contributors")
    if counted is not None and counted["if_the_largest_lied"].endswith("nothing is guaranteed"):
        said.append("Anything, if the largest contributor lied.")
    return tuple(said)
