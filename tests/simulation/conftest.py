from pathlib import Path

import numpy as np
import pytest

from tests.support.truth.known import label_population


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An npz of 3,000 records over 5 labels, float32."""
    probs, labels = label_population(3_000, 5, np.random.default_rng(0), ties=False)
    path = tmp_path_factory.mktemp("data") / "records.npz"
    np.savez(path, probs=probs.astype(np.float32), labels=labels)
    return path
