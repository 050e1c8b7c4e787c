"""Networks that learn numbers: squared error within a public range, exactly and by torch."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from confide.client.training.computing import Computing
from confide.client.training.layers import Stack, Traces
from confide.client.training.networks import open_sums
from confide.protocol.architectures.base import Network, scaled, shares
from confide.protocol.architectures.export import predict_file, to_onnx
from confide.protocol.architectures.origin import is_export
from confide.protocol.architectures.registry import open_network
from confide.protocol.errors import BadInput
from confide.protocol.exact.lattice import CLIP_UNITS, sensitivity
from confide.protocol.exact.sampling import SeededEntropy
from confide.protocol.methods.training.terms import TrainingTerms
from confide.protocol.models.model_file import Model
from confide.protocol.plan import Plan
from tests.support.servers.servers import plan_now
from tests.support.training.federated_trainings import SETTINGS

SPAN = (-10.0, 30.0)
CENTRE, CLIP = 0.5, 0.25
FEATURES = np.random.default_rng(1).random((60, 4))
TARGETS = np.random.default_rng(2).uniform(-20, 40, 60)
NETWORKS = {
    "linear": ("linear", "{}"),
    "mlp": ("mlp", '{"hidden":[5]}'),
    "cnn": ("cnn", '{"channels":[2],"image":[1,2,2]}'),
}


def network(name: str) -> Network:
    kind, arguments = NETWORKS[name]
    return open_network(kind, arguments, source=b"", features=4, outputs=1)


def sums(name: str, targets: NDArray[Any], rows: Any = slice(None)) -> NDArray[np.int64]:
    """The clipped sum of records at weights whose outputs lie about in the range."""
    made = network(name)
    weights = np.random.default_rng(3).normal(0, 0.3, made.size)
    find = open_sums(
        made, clip=CLIP, centre=CENTRE, batch=60.0, computing=Computing("cpu"), span=SPAN
    )
    return find(weights, (FEATURES[rows], targets[rows]), SeededEntropy("numbers"))


def by_autograd(name: str, targets: NDArray[Any]) -> NDArray[np.float64]:
    """The sum of clipped gradients of (f - t)^2 / 4 by plain automatic differentiation."""
    import torch

    made = network(name)
    weights = np.random.default_rng(3).normal(0, 0.3, made.size)
    module = made.module().double()
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights), module.parameters())
    total = np.zeros(made.size)
    inputs = torch.from_numpy(scaled(FEATURES, CENTRE))
    for row, target in zip(inputs, shares(targets, SPAN).tolist(), strict=True):
        module.zero_grad()
        ((module(row[None])[0, 0] - target) ** 2 / 4).backward()
        own = torch.cat([value.grad.flatten() for value in module.parameters()]).numpy()
        total += own * min(1.0, CLIP / np.linalg.norm(own))
    return total


@pytest.mark.parametrize("name", NETWORKS)
def test_sums_are_the_clipped_gradients_of_squared_error(name: str) -> None:
    """Of targets in the public range and outside of it, which count as its ends.

    In exact arithmetic a signal is at most 1, which is no limit while outputs stay in the range.
    """
    found = sums(name, TARGETS) * (CLIP / CLIP_UNITS)
    if name == "cnn":
        np.testing.assert_allclose(found, by_autograd(name, TARGETS), atol=1e-4)
    else:
        # Values and signals on grids of 2^-11 and finer.
        np.testing.assert_allclose(found, by_autograd(name, TARGETS), atol=60 * 2e-3)
    clipped = np.clip(TARGETS, *SPAN)
    assert np.array_equal(sums(name, TARGETS), sums(name, clipped))


@pytest.mark.parametrize("name", NETWORKS)
def test_one_record_moves_a_sum_by_at_most_the_sensitivity(name: str) -> None:
    """Whatever target it has: the noise is scaled to that. One that is no number has no share, and
    raises nothing."""
    without = sums(name, TARGETS, np.delete(np.arange(60), 7))
    for value in (np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0):
        other = TARGETS.copy()
        other[7] = value
        moved = (sums(name, other) - without).astype(np.float64)
        assert np.linalg.norm(moved) <= sensitivity(network(name).size)
        if np.isnan(value):
            assert np.abs(moved).max() <= 1


def test_a_sum_without_clipping_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: every record counts in full, and one moves the sum by more than allowed."""
    factor = CLIP_UNITS / CLIP
    monkeypatch.setattr(Traces, "factors", lambda self, clip: np.full(len(self.inputs[0]), factor))
    without, found = sums("linear", TARGETS, np.delete(np.arange(60), 7)), []
    for end in SPAN:
        other = TARGETS.copy()
        other[7] = end
        found.append(np.linalg.norm((sums("linear", other) - without).astype(np.float64)))
    assert max(found) > sensitivity(network("linear").size)


def test_a_signal_is_half_the_distance_in_shares_of_the_range() -> None:
    """At weights 0 the output is the middle of the range; a target there has no gradient."""
    stack = Stack((4, 1), np.zeros(5), clip=1.0, centre=CENTRE, span=SPAN)
    targets = np.array([10.0, 30.0, -10.0, 20.0, np.nan, np.inf])
    found = stack.traces(FEATURES[:6], targets).signals[0][:, 0]
    unit = found[2]
    assert (found / unit).tolist() == [0.0, -1.0, 1.0, -0.5, 0.0, -1.0]


@pytest.mark.parametrize("name", NETWORKS)
def test_the_file_predicts_in_the_unit_of_targets(name: str) -> None:
    """Within the range, the same bytes each time, and known as an export of this range only."""
    made = network(name)
    weights = np.random.default_rng(4).normal(0, 1, made.size).astype(np.float32)
    file = to_onnx(made, weights, centre=CENTRE, span=SPAN)
    assert file == to_onnx(made, weights, centre=CENTRE, span=SPAN)
    found = predict_file(file, FEATURES)
    assert found.shape == (60, 1)
    assert found.min() >= SPAN[0]
    assert found.max() <= SPAN[1]
    import torch

    module = made.module().double()
    with torch.no_grad():
        torch.nn.utils.vector_to_parameters(torch.from_numpy(weights).double(), module.parameters())
        plain = module(torch.from_numpy(scaled(FEATURES, CENTRE))).numpy()
    np.testing.assert_allclose(found, 10.0 + 20.0 * np.clip(plain, -1, 1), atol=1e-4)
    assert is_export(file, made, centre=CENTRE, span=SPAN)
    assert not is_export(file, made, centre=CENTRE)
    assert not is_export(file, made, centre=CENTRE, span=(-10.0, 31.0))
    assert Model.of(file).open().outputs == 1


def plan(**settings: Any) -> Plan:
    given = SETTINGS | {"labels": 0, "target-low": SPAN[0], "target-high": SPAN[1]} | settings
    terms = TrainingTerms.from_settings("federated-averaging", given)
    score = "absolute-residual bound=5" if given["labels"] == 0 else "hps"
    return plan_now(terms=terms, score=score, labels=given["labels"])


def test_plans_of_numbers_need_a_public_range() -> None:
    """And one output; a plan of labels has none."""
    made = plan()
    assert Plan.from_bytes(made.to_bytes()) == made
    assert TrainingTerms.of(made.terms).span == SPAN
    for settings, said in (
        ({"target-low": 0.0, "target-high": 0.0}, "accepted is a public range"),
        ({"target-low": 5.0, "target-high": -5.0}, "accepted is a public range"),
        ({"target-high": float("nan")}, "accepted is a public range"),
        ({"target-high": 1e13}, "accepted is a public range"),
        ({"labels": 3}, "with 3 labels; accepted is 0 for both"),
    ):
        with pytest.raises(BadInput, match=said):
            plan(**settings)
