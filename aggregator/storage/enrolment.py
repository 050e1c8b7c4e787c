"""The enrolled owners and their tokens; only hashes of tokens are stored."""

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import Engine, select, update

from confide.aggregator.campaigns.planning.settings import check
from confide.aggregator.storage.database import insert, writing
from confide.aggregator.storage.schema import owners
from confide.protocol.errors import BadInput

TOKEN_BYTES = 32


@dataclass(frozen=True)
class Owner:
    """An enrolled data owner."""

    id: int
    name: str
    # How many records it may contribute to a campaign; None: the plan decides.
    records: int | None = None


class Enrolment:
    """The owners of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._writing = engine, writing(engine)

    def add(self, name: str, *, records: int | None = None) -> str:
        """A fresh token for an owner, which replaces an earlier one.

        How many records the owner may contribute does not change unless it is given.
        """
        if not name or len(name) > 200 or not name.isprintable():
            raise BadInput(f"owner is {name!r}; accepted are 1 to 200 printable characters")
        if records is not None:
            check({"records": records})
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with self._writing.begin() as db:
            given = {"token": token_hash(token)} | ({} if records is None else {"records": records})
            made = insert(db.dialect.name, owners).values(name=name, **given)
            db.execute(made.on_conflict_do_update(index_elements=["name"], set_=given))
        return token

    def remove(self, name: str) -> None:
        """Shut an owner out; what it has already sent still counts."""
        with self._writing.begin() as db:
            if (
                db.execute(update(owners).where(owners.c.name == name).values(token=None)).rowcount
                != 1
            ):
                raise BadInput(f"no owner is called {name!r}")

    def names(self) -> list[tuple[str, bool, int | None]]:
        """Every owner, whether it may still send, and how many records at most."""
        with self._engine.connect() as db:
            found = db.execute(select(owners).order_by(owners.c.name))
            return [(row.name, row.token is not None, row.records) for row in found]

    def everybody(self) -> dict[bytes, Owner]:
        """Every owner that may send, by the hash of its token."""
        with self._engine.connect() as db:
            found = db.execute(select(owners).where(owners.c.token.is_not(None)))
            return {row.token: Owner(row.id, row.name, row.records) for row in found}


def token_hash(token: str) -> bytes:
    """A token has 256 bits of randomness: one hash is enough."""
    return hashlib.sha256(token.encode()).digest()
