"""The cells of DPCP Figure 15: a network for images in MNIST's format."""

from pathlib import Path

import numpy as np

from confide.protocol.privacy.budgets import Budget
from confide.simulation.evaluate.full_data.learners import Learner
from confide.simulation.evaluate.full_data.networks import Labels, NetworkLearner, Recipe
from confide.simulation.evaluate.full_data.terms import PipelineTerms
from confide.simulation.reproduce.files import mnist_format
from confide.simulation.reproduce.full_data.cells import ALPHA, Cell

DELTA, EPSILONS = 5e-5, (0.5, 1.0, 2.0, 4.0)
TRAINED, TEST = 20_000, 10_000
METHODS = ("dpcp", "certified", "pscp", "differential", "split-certified")


def image_cells(folder: Path) -> list[Cell]:
    """A cell an epsilon, on two thirds of the images or as many as the paper has."""
    images = mnist_format(folder, "train")
    n = min(TRAINED, 2 * len(images) // 3)
    recipe = Recipe(hidden=(32,), epochs=10, batch=min(512, n), rate=2e-3)

    def make(rng: np.random.Generator, total: int) -> Learner:
        dealt = rng.permutation(len(images))[:total]
        return NetworkLearner(images.flat[dealt], Labels(images.labels[dealt]), recipe)

    test = min(TEST, len(images) - n)
    terms = [PipelineTerms(n, Budget(epsilon, DELTA), alpha=ALPHA) for epsilon in EPSILONS]
    return [Cell("dpcp-images", one, METHODS, test, make) for one in terms]
