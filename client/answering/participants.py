"""Who takes part in a campaign: records, or the persons they belong to, chosen by a keyed hash.

Only the owner's secret chooses records, assigns them to queries and gives reports their ids. What
is chosen follows from names, and not from what records hold.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from confide.client.ledger.ledger import Ledger
from confide.client.records.records import Records
from confide.protocol.plan import Plan, split_name
from confide.protocol.wire.columns import Array
from confide.protocol.wire.encoding import ID_BYTES


class _Names(Sequence[bytes]):
    """Names of 16 bytes, one after the other: as objects they would take four times the memory."""

    def __init__(self, joined: bytes) -> None:
        self._joined = joined

    def __len__(self) -> int:
        return len(self._joined) // 16

    def __getitem__(self, i: Any) -> Any:
        return self._joined[16 * i : 16 * i + 16]

    def __iter__(self) -> Iterator[bytes]:
        joined = self._joined
        return (joined[start : start + 16] for start in range(0, len(joined), 16))

    def at(self, places: Array) -> list[bytes]:
        """Return the names at these places."""
        joined = self._joined
        return [joined[start : start + 16] for start in (16 * places).tolist()]


class Participants:
    """The records of an owner under names that only its secret can make."""

    def __init__(self, records: Records, ledger: Ledger, secret: bytes) -> None:
        self._secret = secret
        self._own = _Names(b"".join(self._hashes(records.names, b"record", size=16)))
        known = ledger.persons() if records.persons is None else {}
        self._persons = (
            None
            if records.persons is None
            else list(self._hashes(records.persons, b"person", size=16))
        )
        # Records, or the persons they belong to by this file or by an earlier one.
        self._names: Sequence[bytes] = self._own
        if self._persons is not None or known:
            self._names = self._persons or [known.get(name, name) for name in self._own]
        self._placed: tuple[bytes, Array, NDArray[np.float64]] | None = None

    def __len__(self) -> int:
        return len(set(self._names))

    def admit(self, ledger: Ledger, *, new: bool) -> None:
        """Register records and their persons in the ledger."""
        ledger.admit(self._own, self._persons, new=new)

    def payers(self, places: Array) -> list[tuple[bytes, ...]]:
        """Return the names that a charge for each of these records is kept under."""
        own = self._own.at(places)
        if self._names is self._own:
            return [(name,) for name in own]
        pairs = zip(own, places.tolist(), strict=True)
        return [tuple({name, self._names[i]}) for name, i in pairs]

    def taking_part(self, plan: Plan, plan_digest: bytes) -> tuple[Array, NDArray[np.float64]]:
        """Return the records that take part in a campaign, one per person, and all positions."""
        if self._placed is None or self._placed[0] != plan_digest:
            everyone = np.arange(len(self._names))
            positions = self.units(plan_digest, everyone, b"position")
            if len(self) < len(self._names):
                # On the records of a training, a person has the record that trained.
                same = plan.terms.on_training_records
                everyone = self.one_each(plan.training if same else plan_digest)
            if plan.share:
                first, last = plan.share
                parts = self.units(split_name(plan, plan_digest), everyone, b"split")
                everyone = everyone[(parts >= first) & (parts < last)]
            self._placed = plan_digest, everyone, positions
        return self._placed[1:]

    def without(self, places: Array, names: set[bytes]) -> Array:
        """Return the places of records that no one of these names pays for."""
        if not names:
            return places
        kept = [names.isdisjoint(payers) for payers in self.payers(places)]
        return places[np.array(kept, dtype=bool)]

    def only(self, places: Array, names: set[bytes]) -> Array:
        """Return the places of records that are themselves among these names."""
        kept = [self._own[i] in names for i in places.tolist()]
        return places[np.array(kept, dtype=bool)]

    def one_each(self, digest: bytes) -> Array:
        """Choose one record of every person for what this digest names."""
        drawn: dict[bytes, tuple[bytes, int]] = {}
        tickets = self._hashes(self._own, b"ticket", size=8, after=digest)
        for i, (person, hashed) in enumerate(zip(self._names, tickets, strict=True)):
            ticket = hashed, i
            drawn[person] = min(drawn.get(person, ticket), ticket)
        return np.array(sorted(i for _, i in drawn.values()), dtype=np.int64)

    def units(self, digest: bytes, chosen: Array, purpose: bytes) -> NDArray[np.float64]:
        """Return a uniform number in [0, 1) per record, which only the owner can predict.

        It is 53 bits of a keyed hash.
        """
        payers = self._payer_of(chosen)
        words = b"".join(self._hashes(payers, purpose, size=8, after=digest))
        return (np.frombuffer(words, dtype="<u8") >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def report_ids(self, plan_digest: bytes, places: Array, *, whole: bool) -> tuple[Array, Array]:
        """Return the ids of the reports and the places in their order; a whole owner has one id.

        Reports are in the order of their ids: the order of the file would tell which reports of two
        campaigns belong to the same record.
        """
        names = list(self._hashes([plan_digest], b"owner", size=ID_BYTES))
        if not whole:
            payers = self._payer_of(places)
            reports = self._hashes(payers, b"report", size=ID_BYTES, after=plan_digest)
            named = sorted(zip(reports, places.tolist(), strict=True))
            names, places = [name for name, _ in named], np.array([i for _, i in named])
        return np.frombuffer(b"".join(names), dtype=np.uint8).reshape(-1, ID_BYTES), places

    def _payer_of(self, places: Array) -> list[bytes]:
        """Return who pays for the records at these places: they themselves, or their persons."""
        if self._names is self._own:
            return self._own.at(places)
        return [self._names[i] for i in places.tolist()]

    def _hashes(
        self, names: Iterable[bytes], purpose: bytes, *, size: int, after: bytes = b""
    ) -> Iterator[bytes]:
        """Return the keyed hash of every name, each with the same bytes in front of it."""
        keyed = hashlib.blake2b(after, key=self._secret, person=purpose, digest_size=size)
        for name in names:
            one = keyed.copy()
            one.update(name)
            yield one.digest()
