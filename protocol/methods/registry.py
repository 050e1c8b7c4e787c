"""The methods by name; methods of other packages register in the same way as the built-in ones."""

from confide.protocol.errors import BadInput
from confide.protocol.methods.base import Terms
from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.counts.full_data import FullDataTerms
from confide.protocol.methods.labels.pairs import PairTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.protocol.methods.monitor import MonitorTerms
from confide.protocol.methods.training.terms import TrainingTerms

METHODS: dict[str, type[Terms]] = {}


def register(terms: type[Terms]) -> type[Terms]:
    """Make a method known to plans under its name; usable as a decorator."""
    if METHODS.setdefault(terms.method, terms) is not terms:
        raise BadInput(f"method {terms.method!r} is registered already; accepted is another name")
    return terms


BUILT_IN: tuple[type[Terms], ...] = (
    LabelTerms,
    BitTerms,
    PairTerms,
    CentralTerms,
    FullDataTerms,
    MonitorTerms,
    TrainingTerms,
)
for _terms in BUILT_IN:
    register(_terms)


def local_variants() -> dict[str, tuple[str, ...]]:
    """The variants of every method in which each report is private by itself."""
    return {name: terms.variants for name, terms in METHODS.items() if terms.calibrates_by_reports}
