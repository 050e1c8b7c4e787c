"""Small convolutional networks for images: without privacy, and by DP-SGD."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from confide.client.training.descent import Schedule
from confide.client.training.private_training import train
from confide.protocol.architectures.convolutions import CNN
from confide.protocol.exact.sampling import Entropy
from confide.protocol.privacy.budgets import Budget, noise_multiplier
from confide.simulation.reproduce.files import Images

CHANNELS = (16, 32)
BATCH, RATE, EPOCHS = 128, 1e-3, 5
_CHUNK = 1_000


def network(images: Images, *, k: int) -> Any:
    """A network for images of this shape."""
    shape = images.images.shape[1:]
    made = CNN(int(np.prod(shape)), k, image=shape, channels=CHANNELS)
    return made.module()


def probabilities(
    training: Images, others: Images, *, k: int, seed: int, epochs: int = EPOCHS
) -> NDArray[np.float64]:
    """Class probabilities of other images by a network trained without privacy."""
    torch.set_num_threads(1)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = network(training, k=k)
        optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
        features, labels = torch.from_numpy(training.flat), torch.from_numpy(training.labels)
        for _ in range(epochs):
            order = torch.randperm(len(labels))
            for start in range(0, len(labels), BATCH):
                rows = order[start : start + BATCH]
                optimizer.zero_grad()
                loss = F.cross_entropy(model(features[rows]), labels[rows])
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
    return predicted(model, others)


def private_probabilities(
    training: Images,
    others: Images,
    *,
    k: int,
    budget: Budget,
    epochs: int,
    batch: int,
    smoothing: float,
    temperature: float,
    entropy: Entropy,
) -> NDArray[np.float64]:
    """Class probabilities of other images by a network trained by DP-SGD within a budget."""
    torch.set_num_threads(1)
    rate = min(1.0, batch / len(training))
    steps = max(1, round(epochs / rate))

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs, targets, reduction="none", label_smoothing=smoothing)

    noise = noise_multiplier(budget, sampling_rate=rate, steps=steps)
    with torch.random.fork_rng():
        torch.manual_seed(int.from_bytes(entropy(7), "little"))
        start = network(training, k=k)
    trained = train(
        start,
        training.flat,
        training.labels,
        loss=loss,
        schedule=Schedule(noise, rate, steps, 1.0, batch),
        optimizer=lambda parameters: torch.optim.Adam(parameters, lr=RATE),
        entropy=entropy,
        device="cpu",
    )
    return predicted(trained.model, others, temperature=temperature)


def predicted(model: nn.Module, images: Images, *, temperature: float = 1.0) -> NDArray[np.float64]:
    """Softmax of the outputs over the temperature, a thousand images at a time."""
    parts = []
    with torch.no_grad():
        for start in range(0, len(images), _CHUNK):
            outputs = model(torch.from_numpy(images.flat[start : start + _CHUNK])).double()
            parts.append(torch.softmax(outputs / temperature, dim=1).numpy())
    return np.concatenate(parts)
