"""The tables of a ledger, and the changes that bring an earlier format up to date."""

FORMAT = 5
# Rows of the table `flags`. A ledger with the first is a backup: it can be merged, not used. One
# with the second was upgraded from a format that kept ids as they were written.
BACKUP, EARLIER_NAMES = "backup", "earlier names"

_SPENDS = """
CREATE TABLE plans (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    campaign TEXT NOT NULL,
    epsilon REAL NOT NULL
);
CREATE TABLE queries (
    id INTEGER PRIMARY KEY,
    plan INTEGER NOT NULL REFERENCES plans,
    digest BLOB NOT NULL,
    round INTEGER NOT NULL,
    at TEXT NOT NULL,
    answer BLOB,
    receipt INTEGER,
    UNIQUE (plan, digest)
);
CREATE TABLE spends (
    record BLOB NOT NULL,
    plan INTEGER NOT NULL REFERENCES plans,
    query INTEGER NOT NULL REFERENCES queries,
    epsilon REAL NOT NULL,
    delta REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (record, plan)
) WITHOUT ROWID;
"""
# Added by format 3: the keys that signed a plan; the secret that records are named with, and the
# file that the ledger is in; every record ever seen, and the person it belongs to; flags.
_IDENTITIES = """
CREATE TABLE signers (
    plan INTEGER NOT NULL REFERENCES plans,
    aggregator BLOB NOT NULL,
    PRIMARY KEY (plan, aggregator)
);
CREATE TABLE secret (fingerprint BLOB NOT NULL, inode INTEGER NOT NULL);
CREATE TABLE known (record BLOB PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE persons (record BLOB PRIMARY KEY, person BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE flags (name TEXT PRIMARY KEY);
"""
# Added by format 4: the bytes of a plan that trains a network.
_TRAININGS = "ALTER TABLE plans ADD COLUMN training BLOB"
# Added by format 5: whether a model saw many records at once for the answer.
_BATCHES = "ALTER TABLE queries ADD COLUMN together INTEGER NOT NULL DEFAULT 0"
CREATE = (
    f"BEGIN;{_SPENDS}{_IDENTITIES}{_TRAININGS};{_BATCHES};PRAGMA user_version = {FORMAT};COMMIT;"
)
# The payers of a query, by the place of their record.
ASKED = "CREATE TEMP TABLE asked (place INTEGER NOT NULL, record BLOB NOT NULL)"
# By the format that the changes start from.
UPGRADES = {
    1: (
        "ALTER TABLE queries ADD COLUMN receipt INTEGER",
        "ALTER TABLE spends ADD COLUMN delta REAL NOT NULL DEFAULT 0",
    ),
    2: (
        *_IDENTITIES.split(";"),
        "INSERT INTO known SELECT DISTINCT record FROM spends",
        # Ids were kept as they were written: 007 and 7 were two names.
        f"INSERT INTO flags VALUES ('{EARLIER_NAMES}')",
    ),
    3: (_TRAININGS,),
    4: (_BATCHES,),
}
