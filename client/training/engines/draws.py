"""What torch draws for a model (dropout), from the randomness of a step.

Masks are drawn for places in a micro-batch, alike and independent, and are as secret as the key. So
a record's mask has the same law at every place, whichever records are beside it. The bound on one
record's effect holds whatever mask each record gets, and so for their mixture. Torch's generator is
fast and not cryptographic: that its draws are independent is taken for granted.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from confide.protocol.exact.sampling import Entropy


@contextmanager
def torch_seeded(entropy: Entropy | None, device: torch.device) -> Iterator[None]:
    """Let torch draw from a seed of the entropy, and leave its generators as they were.

    Without entropy torch draws as it would.
    """
    if entropy is None:
        yield
        return
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(int.from_bytes(entropy(8), "little"))
        yield
