"""The kind and the bounds of every setting of an operator, checked before it is used."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from confide.protocol.architectures.base import MOST_TARGET
from confide.protocol.certificate import BAND, BY_CLASS, BY_GROUP, MARGINAL, PAC
from confide.protocol.channels.base import MOST_LABELS
from confide.protocol.errors import BadInput
from confide.protocol.exact.grids import GRID_NAMES, MOST_BINS
from confide.protocol.exact.lattice import MOST_WEIGHTS
from confide.protocol.methods.base import AUTOMATIC
from confide.protocol.methods.labels.in_clear import MOST_SENT_FEATURES
from confide.protocol.methods.monitor import MOST_PERIODS
from confide.protocol.methods.owner_terms import MIXTURES
from confide.protocol.methods.partition import MOST_GROUPS
from confide.protocol.methods.registry import METHODS
from confide.protocol.methods.training.noised_errors import MOST_SHARE
from confide.protocol.methods.training.terms import LIMITS
from confide.protocol.shuffling import MOST_CROWD

MOST_DAYS = 3650
# Far above any campaign, and far below the largest number in a database column.
MOST_REPORTS, MOST_OWNERS = 10**12, 10**9
MOST_CLASS_FLOOR = 10**9
GUARANTEES = (AUTOMATIC, MARGINAL, PAC, BAND)


class Kind(NamedTuple):
    """The values that a setting accepts, as a test and in words."""

    accepts: Callable[[Any], bool]
    words: str


def _whole(least: int, most: int) -> Kind:
    return Kind(
        lambda value: type(value) is int and least <= value <= most,
        f"a whole number from {least} to {most}",
    )


def _positive(most: float) -> Kind:
    return Kind(
        lambda value: type(value) in (int, float) and 0 < value <= most,
        f"a number above 0 and at most {most:.10g}",
    )


def _limit(name: str, *, whole: bool = False) -> Kind:
    """The limit of a training, as a kind."""
    least, most = LIMITS[name]
    if whole:
        return _whole(int(least), int(most))
    return Kind(
        lambda value: type(value) in (int, float) and least <= value <= most,
        f"a number from {least:.10g} to {most:.10g}",
    )


def _or_automatic(kind: Kind) -> Kind:
    """The kind of a setting that may be left to a rule, or to the mechanism."""
    return Kind(
        lambda value: value == AUTOMATIC or kind.accepts(value), f"{AUTOMATIC} or {kind.words}"
    )


def _is_digest(value: Any) -> bool:
    return (
        isinstance(value, str)
        and len(value) == 64
        and set(value.lower()) <= set("0123456789abcdef")
    )


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and len(value) <= 200 and value.isprintable()


def _are_names(value: Any) -> bool:
    """Text with commas between names, or a list of them; names are checked where terms are made."""
    listed = value.split(",") if isinstance(value, str) else value
    return isinstance(listed, list | tuple) and len(listed) <= MOST_GROUPS


_TEXT = Kind(_is_text, "text of at most 200 printable characters")
_PATH = Kind(lambda value: isinstance(value, str) and "\0" not in value, "the path of a file")
_FLAG = Kind(lambda value: type(value) is bool, "true or false")
_PROBABILITY = Kind(
    lambda value: type(value) in (int, float) and 0 < value < 1, "a number above 0 and below 1"
)
_SHARE = Kind(lambda value: type(value) in (int, float) and 0 <= value <= 1, "a number from 0 to 1")
_TARGET = Kind(
    lambda value: type(value) in (int, float) and abs(value) <= MOST_TARGET,
    f"a number from {-MOST_TARGET:g} to {MOST_TARGET:g}",
)
KINDS = {
    "campaign": _TEXT,
    "title": _TEXT,
    "score": _TEXT,
    "channel": _TEXT,
    "mechanism": _TEXT,
    "scoring": _TEXT,
    "sent-features": _whole(0, MOST_SENT_FEATURES),
    "model-file": _PATH,
    "provider-data": _PATH,
    "monitors": _PATH,
    "shuffler": _PATH,
    "crowd": _whole(1, MOST_CROWD),
    "periods": _whole(1, MOST_PERIODS),
    "model": Kind(_is_digest, "the SHA-256 of the model file, 64 hexadecimal digits"),
    # 0 is for scores of numbers, which have no labels.
    "labels": _whole(0, MOST_LABELS),
    "largest-set": _whole(0, MOST_LABELS),
    "joint": _FLAG,
    "listed": _FLAG,
    "class-floor": _whole(0, MOST_CLASS_FLOOR),
    "owner-floor": _whole(0, MOST_CLASS_FLOOR),
    "group-floor": _whole(0, MOST_CLASS_FLOOR),
    "by": Kind(lambda value: value in ("", BY_CLASS, BY_GROUP), f"{BY_CLASS} or {BY_GROUP}"),
    "group-column": _TEXT,
    "groups": Kind(_are_names, f"at most {MOST_GROUPS:,} names, as 'A,B,C'"),
    "smallest-owner": _whole(0, MOST_CLASS_FLOOR),
    "mixture": Kind(lambda value: value in MIXTURES, " or ".join(MIXTURES)),
    "bins": _or_automatic(_whole(2, MOST_BINS)),
    "guarantee": Kind(lambda value: value in GUARANTEES, f"one of {', '.join(GUARANTEES)}"),
    "grid": Kind(lambda value: value in GRID_NAMES, f"one of {', '.join(GRID_NAMES)}"),
    "edges-file": _PATH,
    "records": _whole(1, MOST_REPORTS),
    "minimum-reports": _whole(0, MOST_REPORTS),
    "max-corrupt": _whole(0, MOST_REPORTS),
    "enough": _whole(0, MOST_REPORTS),
    "minimum-owners": _whole(1, MOST_OWNERS),
    "owners": _whole(0, MOST_OWNERS),
    "epsilon": _positive(40),
    "alpha": _PROBABILITY,
    "failure-probability": _PROBABILITY,
    "beta": _SHARE,
    "train-share": _SHARE,
    "training-epsilon": Kind(
        lambda value: type(value) in (int, float) and 0 <= value <= 40, "a number from 0 to 40"
    ),
    "privacy-delta": _SHARE,
    "days": _positive(MOST_DAYS),
    "round-seconds": _positive(MOST_DAYS * 86_400),
    "architecture": _TEXT,
    "features": _whole(1, MOST_WEIGHTS),
    "rounds": _limit("rounds", whole=True),
    "local-steps": _limit("local_steps", whole=True),
    "sampling-rate": _limit("sampling_rate"),
    "clip": _limit("clip"),
    "batch": _or_automatic(_limit("batch")),
    "learning-rate": _or_automatic(_limit("learning_rate")),
    "momentum": _limit("momentum"),
    "averaged-rounds": _limit("rounds", whole=True),
    "centre": _limit("centre"),
    "loss-share": Kind(
        lambda value: type(value) in (int, float) and 0 <= value <= MOST_SHARE,
        f"a number from 0 to {MOST_SHARE:g}",
    ),
    "target-low": _TARGET,
    "target-high": _TARGET,
}


def belongs() -> dict[str, tuple[str, ...]]:
    """The settings that only some campaigns have, each with these: method or method:variant."""
    found: dict[str, tuple[str, ...]] = {}
    for method, terms in METHODS.items():
        for name, variants in terms.settings.items():
            owners = tuple(f"{method}:{variant}" for variant in variants) or (method,)
            found[name] = found.get(name, ()) + owners
    return found


def promising(campaigns: Iterable[str], guarantee: Any = AUTOMATIC) -> list[str]:
    """The campaigns, and their methods with the guarantee that some settings belong to."""
    names = list(campaigns)
    methods = [name.partition(":")[0] for name in names]
    usual = guarantee in (None, AUTOMATIC)
    return names + [
        f"{method}:{METHODS[method].usual_guarantee if usual else guarantee}"
        for method in methods
        if method in METHODS
    ]


def read_bins(text: str) -> int | str:
    """Read the option of bins: a whole number, or `auto`."""
    return int(text) if text.isdecimal() else text


def read_number(text: str) -> float | str:
    """Read an option that is a number, or `auto`."""
    try:
        return float(text)
    except ValueError:
        return text


FAILURE = (
    "delta is now failure-probability: the probability, over calibration, that the promise of a "
    "labels or bits campaign fails; the delta of (epsilon, delta)-differential privacy is "
    "privacy-delta"
)


def check(values: Mapping[str, Any]) -> None:
    """Refuse, by its name, the first value that is not of its kind; other names are not checked."""
    for name, value in values.items():
        if name == "delta":
            raise BadInput(FAILURE)
        if name in KINDS and not KINDS[name].accepts(value):
            raise BadInput(f"{name} is {_shown(value)}; accepted is {KINDS[name].words}")


# Why a setting belongs to few campaigns, where its name does not say.
WHY = {
    "mixture": (
        ": one round has one mixture of owners only, variants of owners hold for any, and pairs "
        "certify that of their last five rounds"
    )
}


def check_used(
    given: Iterable[str], campaigns: Iterable[str], only: Mapping[str, tuple[str, ...]]
) -> None:
    """Refuse a given setting that none of the campaigns (`method` or `method:variant`) has."""
    asked = list(campaigns)
    names = {*asked, *(campaign.partition(":")[0] for campaign in asked)}
    for name in given:
        owners = only.get(name)
        if owners is not None and names.isdisjoint(owners):
            promised = any(owner.partition(":")[2] in GUARANTEES for owner in owners)
            said = [one for one in asked if promised or one.partition(":")[2] not in GUARANTEES]
            raise BadInput(
                f"{name} is given, which {', '.join(said)} does not use; it belongs to "
                f"{', '.join(owners)}{WHY.get(name, '')}"
            )


def _shown(value: Any) -> str:
    # Python refuses to write out whole numbers of thousands of digits.
    if type(value) is int and value.bit_length() > 1000:
        return f"a whole number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:100]}..."
