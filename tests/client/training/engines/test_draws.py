"""What a model draws (dropout) comes from the step's own randomness."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from confide.client.training.descent import Schedule
from confide.client.training.engines.choice import make_clipper
from confide.client.training.engines.clipper import Clipper
from confide.client.training.private_training import train
from confide.protocol.exact.sampling import SeededEntropy
from tests.support.networks.torch_models import KINDS
from tests.support.training.private_trainings import cross_entropy, like, records, sgd, weights

pytestmark = pytest.mark.filterwarnings(
    "ignore:Full backward hook:UserWarning", "ignore:Secure RNG:UserWarning"
)
torch.set_num_threads(1)
# Noise too small to be felt, so that dropout alone tells trainings apart.
SCHEDULE = Schedule(noise_multiplier=1e-9, sampling_rate=1.0, steps=3, clip=1.0, batch=40.0)


def dropping() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.5), nn.ReLU(), nn.Linear(32, 3)).double()


def trained(model: nn.Module, seed: int, **options: Any) -> Any:
    features, labels = records(40)
    return weights(
        train(
            model,
            features,
            labels,
            loss=cross_entropy,
            schedule=SCHEDULE,
            optimizer=sgd,
            entropy=SeededEntropy(seed),
            **options,
        ).model
    )


def clipper(engine: str) -> Clipper:
    return make_clipper(
        dropping(), cross_entropy, 0.5, engine=engine, like=like(*records(2)), batch=8
    )


@pytest.mark.parametrize("engine", ["ghost", "hooks", "functional", "single"])
def test_one_key_is_one_result_with_dropout(engine: str) -> None:
    """Whatever torch's own generator holds; another key is another result; and the generator is
    left as it was."""
    found, model = [], dropping()
    for own, seed in ((1, 7), (2, 7), (1, 8)):
        torch.manual_seed(own)
        before = torch.get_rng_state()
        found.append(trained(model, seed, engine=engine))
        assert torch.equal(before, torch.get_rng_state())
    assert np.array_equal(found[0], found[1])
    assert np.abs(found[0] - found[2]).max() > 1e-3


@pytest.mark.parametrize("engine", ["ghost", "hooks", "functional", "single"])
def test_micro_batches_and_records_draw_for_themselves(engine: str) -> None:
    """Sixteen copies of a record have sixteen losses."""
    features, labels = (torch.from_numpy(array) for array in records(2))
    clipped = clipper(engine)
    losses, _ = clipped(features[:1].repeat(16, 1), labels[:1].repeat(16), entropy=SeededEntropy(1))
    assert len(set(losses.tolist())) == 16


def test_attention_draws_are_keyed_too() -> None:
    """A transformer's dropout is no module of its own everywhere, and still comes from the key."""
    kind = KINDS["transformer"]
    model, given = kind.model(), kind.records(10)
    clipped = make_clipper(model, cross_entropy, 0.5, like=kind.like(torch.device("cpu")), batch=8)
    first, again, other = (clipped(*given, entropy=SeededEntropy(seed))[1] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.allclose(first, other)
