"""The users of every method whose records are arrays."""

from collections.abc import Callable
from typing import Any

from confide.protocol.methods.bits import BitTerms
from confide.protocol.methods.counts.central import CentralTerms
from confide.protocol.methods.labels.pairs import PairTerms
from confide.protocol.methods.labels.terms import LabelTerms
from confide.simulation.driver import BitUsers, CountingOwner, LabelUsers, PairUsers

# Made of records, entropy and the part that each record is in, for those present in a round.
USERS: dict[str, Callable[..., Callable[[Any], Any]]] = {
    BitTerms.method: lambda records, *given, presence: BitUsers(
        records.own, *given, presence=presence
    ),
    LabelTerms.method: lambda records, *given, presence: LabelUsers(
        records.every, records.truth, *given, presence=presence
    ),
    PairTerms.method: lambda records, entropy, *_, presence: PairUsers(
        records.own, records.truth, entropy, presence=presence
    ),
    CentralTerms.method: lambda records, *_, presence: CountingOwner(
        *records.counted, presence=presence
    ),
}
