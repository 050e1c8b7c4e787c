"""A chain of numbers over a real server, by commands: owners train a network of targets together,
calibrate it by counts, bits and on the same records, and predict intervals."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from confide.protocol.cards.card import read_card
from confide.protocol.cards.verify.card import verify
from confide.protocol.prediction.predictor import Predictor
from tests.support.owners.owners import PUBLIC
from tests.support.servers.servers import Place
from tests.support.training.chains import Contributor, Operator

OWNERS, EACH, SPAN = 2, 2_500, (20.0, 80.0)
CAMPAIGNS = ("central:trusted", "bits:certified", "full-data:certified")
CHAIN = f"""
title = "numbers"
score = "absolute-residual bound=40"
records = {OWNERS * EACH}
owners = {OWNERS}
train-share = 0.5

[training]
architecture = "linear"
features = 3
epsilon = 4.0
privacy-delta = 1e-6
rounds = 6
local-steps = 4
sampling-rate = 0.5
clip = 1.0
batch = 600.0
learning-rate = 1.0
momentum = 0.5
averaged-rounds = 2
centre = 0.5
target-low = {SPAN[0]}
target-high = {SPAN[1]}

[[calibration]]
campaign = "central:trusted"
epsilon = 1.0

[[calibration]]
campaign = "bits:certified"
epsilon = 4.0
failure-probability = 0.001

[[calibration]]
campaign = "full-data:certified"
epsilon = 1.5
"""


def drawn(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets with normal noise of standard deviation 2 around a plane."""
    rng = np.random.default_rng(seed)
    features = rng.random((n, 3))
    return features, features @ [20.0, -15.0, 5.0] + 45.0 + rng.normal(0, 2, n)


def chain_owner(folder: Path, place: Place, number: int) -> Contributor:
    folder.mkdir()
    features, targets = drawn(EACH, number)
    np.savez(folder / "r.npz", features=features, target=targets, id=np.arange(EACH))
    return Contributor(folder, place, folder / "r.npz")


def test_owners_train_and_calibrate_a_model_of_numbers(place: Place, tmp_path: Path) -> None:
    """Every card verifies, of the file that owners fetched, and its intervals cover new targets.

    The promise of bits fails with probability 0.001. The others promise an average; coverage of
    about 2,500 records has a standard deviation of 0.006, and that of 5,000 test records 0.004, so
    less than 0.86 has a probability below 1e-6.
    """
    server, operator = place.serve(), Operator(place, tmp_path, CHAIN)
    owners = [chain_owner(tmp_path / str(number), place, number) for number in range(OWNERS)]
    process = operator.start()
    try:
        with ThreadPoolExecutor(OWNERS) as pool:
            for name in ("training:federated-averaging", *CAMPAIGNS):
                campaign = operator.campaign(f"numbers: {name}")

                def contribute(
                    one: Contributor, campaign: str = campaign
                ) -> subprocess.CompletedProcess[str]:
                    return one.contribute(server, campaign)

                for done in pool.map(contribute, owners):
                    assert done.returncode == 0, done.stderr + done.stdout
        assert process.wait(timeout=120) == 0, operator.log.read_text()
    finally:
        process.kill()
        process.wait()
    model = operator.out / "model.onnx"
    features, targets = drawn(5_000, 99)
    for name in CAMPAIGNS:
        card = read_card(operator.out / f"{name.replace(':', '-')}.card.json")
        assert all(finding.holds for finding in verify(card, key=PUBLIC))
        assert card.formal["released"]["task"] == "regression"
        assert {"epsilon_train", "epsilon_calibration"} <= set(card.formal["chain"])
        predictor = Predictor.from_card(card, key=PUBLIC, model=model)
        low, high = predictor.predict_interval(features.astype(np.float32)).T
        assert np.mean((low <= targets) & (targets <= high)) > 0.86
        if name.startswith("bits"):
            # So few bits may end in the trivial threshold, whose intervals are the whole line.
            continue
        assert np.sqrt(np.mean(((low + high) / 2 - targets) ** 2)) < 4.0
        assert (high - low).max() < 0.7 * (SPAN[1] - SPAN[0])
