"""The tables of the aggregator.

A batch of reports is one row with the bytes as they were received; single reports have no rows.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()
# SQLite generates ids only in a column of exactly this type.
_Id = BigInteger().with_variant(Integer, "sqlite")

owners = Table(
    "owners",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("name", String(200), nullable=False, unique=True),
    # SHA-256 of the enrolment token; an owner without one is shut out.
    Column("token", LargeBinary(32), unique=True),
    # How many records it may contribute to a campaign; NULL: the plan decides.
    Column("records", BigInteger),
)

campaigns = Table(
    "campaigns",
    metadata,
    Column("id", String(16), primary_key=True),
    Column("signed_plan", LargeBinary, nullable=False),
    Column("settings", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("reason", Text),
    # Moments are seconds since 1970, UTC.
    Column("created", Double, nullable=False),
    Column("opened", Double),
    Column("closed", Double),
    Column("calibrated", Double),
    Column("published", Double),
    Column("purged", Double),
    # The process that advances the campaign, and until when no other may.
    Column("leader", String(64)),
    Column("leased_until", Double, nullable=False, default=0.0),
)

queries = Table(
    "queries",
    metadata,
    Column("campaign", ForeignKey("campaigns.id"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    # SHA-256 of the query, whose bytes are in `round_data`.
    Column("digest", LargeBinary, nullable=False),
    Column("opened", Double, nullable=False),
    Column("deadline", Double, nullable=False),
    # Set once and for ever: no batch enters a round with a moment here.
    Column("closed", Double),
    Column("because", String(16)),
    Column("tally", Text),
    # How many there are in the round: tells a process whether others have added any.
    Column("batches", BigInteger, nullable=False, default=0),
    # What the rows of `parts` add up to: owners that have finished, owners with reports, and
    # reports. Each transaction that writes rows of the round adds what it changes, so that nobody
    # has to add up a row an owner again and again.
    Column("finished", BigInteger, nullable=False, default=0),
    Column("contributed", BigInteger, nullable=False, default=0),
    Column("reports", BigInteger, nullable=False, default=0),
)

# The long values of a round: its `query`, and its `tally` if that is bytes. They have their own
# table, because SQLite reads through a long value to find the columns behind it.
round_data = Table(
    "round_data",
    metadata,
    Column("campaign", ForeignKey("campaigns.id"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("name", String(16), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", _Id, primary_key=True),
    Column("campaign", ForeignKey("campaigns.id"), nullable=False),
    Column("round", Integer, nullable=False),
    Column("owner", ForeignKey("owners.id"), nullable=False),
    Column("digest", LargeBinary(32), nullable=False),
    Column("reports", Integer, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    UniqueConstraint("campaign", "round", "owner", "digest", name="a_batch_is_stored_once"),
)

# The progress of each owner in each round.
parts = Table(
    "parts",
    metadata,
    Column("campaign", ForeignKey("campaigns.id"), primary_key=True),
    Column("round", Integer, primary_key=True, autoincrement=False),
    Column("owner", ForeignKey("owners.id"), primary_key=True),
    Column("batches", BigInteger, nullable=False),
    Column("reports", BigInteger, nullable=False),
    # Of the answers that are stored.
    Column("bytes", BigInteger, nullable=False, default=0),
    Column("seeded", Boolean, nullable=False),
    Column("finished", Boolean, nullable=False),
    # The code with which the owner declined.
    Column("code", String(40)),
    Index("what_an_owner_has_sent", "campaign", "owner"),
)

# Counts of refusals; campaign and owner are empty where they are not known.
rejections = Table(
    "rejections",
    metadata,
    Column("campaign", String(16), primary_key=True),
    Column("owner", String(200), primary_key=True),
    Column("code", String(40), primary_key=True),
    Column("times", BigInteger, nullable=False),
)

releases = Table(
    "releases",
    metadata,
    Column("campaign", ForeignKey("campaigns.id"), primary_key=True),
    Column("release", Text, nullable=False),
)

cards = Table(
    "cards",
    metadata,
    Column("campaign", ForeignKey("campaigns.id"), primary_key=True),
    Column("view", String(16), primary_key=True),
    Column("card", Text, nullable=False),
)

# What trainings end in: the weights, float32, little endian, and a JSON object about them.
trainings = Table(
    "trainings",
    metadata,
    Column("campaign", ForeignKey("campaigns.id"), primary_key=True),
    Column("about", Text, nullable=False),
    Column("weights", LargeBinary, nullable=False),
)

# The files of models that owners may fetch, by their SHA-256.
models = Table(
    "models",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)

# The files of models that the aggregator scores with and shows to nobody, by their SHA-256. They
# have a table of their own, so that nothing that hands out models can read them.
secret_models = Table(
    "secret_models",
    metadata,
    Column("digest", LargeBinary(32), primary_key=True),
    Column("data", LargeBinary, nullable=False),
)
