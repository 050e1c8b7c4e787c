"""Who may send: owners and their tokens, of which only hashes are stored."""

import hashlib
import secrets
from dataclasses import dataclass

from sqlalchemy import Engine, select, update

from aggregator.database import writing
from aggregator.schema import owners
from aggregator.store import insert
from protocol.errors import BadInput

TOKEN_BYTES = 32


@dataclass(frozen=True)
class Owner:
    """An enrolled data owner."""

    id: int
    name: str


class Enrolment:
    """The owners of one database."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._writing = engine, writing(engine)

    def add(self, name: str) -> str:
        """A fresh token for an owner; an earlier one of the same owner is void from now on."""
        if not name or len(name) > 200 or not name.isprintable():
            raise BadInput(f"owner is {name!r}; accepted are 1 to 200 printable characters")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        with self._writing.begin() as db:
            made = insert(db.dialect.name, owners).values(name=name, token=token_hash(token))
            db.execute(made.on_conflict_do_update(index_elements=["name"], set_={"token": token_hash(token)}))
        return token

    def remove(self, name: str) -> None:
        """Shut an owner out; what it has sent stays counted."""
        with self._writing.begin() as db:
            if db.execute(update(owners).where(owners.c.name == name).values(token=None)).rowcount != 1:
                raise BadInput(f"no owner is called {name!r}")

    def names(self) -> list[tuple[str, bool]]:
        """Every owner, and whether it may still send."""
        with self._engine.connect() as db:
            return [(row.name, row.token is not None) for row in db.execute(select(owners).order_by(owners.c.name))]

    def everybody(self) -> dict[bytes, Owner]:
        """Every owner that may send, by the hash of its token."""
        with self._engine.connect() as db:
            return {row.token: Owner(row.id, row.name) for row in db.execute(select(owners).where(owners.c.token.is_not(None)))}


def token_hash(token: str) -> bytes:
    """A token has 256 bits of randomness: one hash is enough."""
    return hashlib.sha256(token.encode()).digest()
