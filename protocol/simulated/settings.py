"""Constants that both sides of a simulated federation share.

They take the place of an owner's folder and an aggregator's key. The signing key is public: a plan
signed with it is a simulation, and only simulated owners trust it.
"""

import hashlib
from datetime import UTC, datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SIMULATION_KEY = Ed25519PrivateKey.from_private_bytes(
    hashlib.sha256(b"confide simulation").digest()
)
SIMULATION_PUBLIC = SIMULATION_KEY.public_key().public_bytes_raw()
EMBEDDED_MODEL = hashlib.sha256(b"confide embedded letter model").digest()
# Names the model of a file that holds results and does not say which model made them.
RESULTS_IN_FILE = hashlib.sha256(b"confide results that came with the records").digest()
CONTENT = "confide"
# The fixed validity period of plans of a seeded simulation. A plan's digest decides groups, ids and
# seeded draws, so a plan that held the time of its run could not be run again.
ALWAYS = datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)
# Environment variable with the folder of simulated owners' ledgers (default: the temporary folder).
RUN_FOLDER = "CONFIDE_RUN_FOLDER"
