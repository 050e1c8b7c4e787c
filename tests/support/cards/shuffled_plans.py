"""A plan of the tests whose reports a shuffler mixes, and the keys of both parties."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from confide.protocol.channels.bit import Bit
from confide.protocol.methods.bits import BitQuery
from confide.protocol.plan import digest
from confide.protocol.sealing import sealing_key
from confide.protocol.shuffling import Shuffling
from tests.support.owners.owners import KEY, PLAN, changed

SHUFFLER = Ed25519PrivateKey.from_private_bytes(b"m" * 32)
OURS = sealing_key(KEY)
SHUFFLING = Shuffling(
    SHUFFLER.public_key().public_bytes_raw(),
    b"a" * 32,
    OURS.public_key().public_bytes_raw(),
    crowd=100,
)
SHUFFLED = changed(PLAN, shuffling=SHUFFLING)
NAME = digest(SHUFFLED.to_bytes())
QUERY = BitQuery(Bit(epsilon=4.0), 0.0, 1.0, tuple(i / 300 for i in range(1, 301)))
