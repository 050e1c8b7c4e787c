"""A published card, and predictions of somebody who has only the card and the publisher's key."""

from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import confide

data = np.load("letters.npz")
key = Ed25519PrivateKey.generate()
made = confide.calibrate(data["probs"][:8000], data["labels"][:8000], epsilon=2.0, name="letters")
Path("card.json").write_text(made.card(key).to_json())

public = key.public_key().public_bytes_raw().hex()
predictor = confide.Predictor.from_card("card.json", key=public)
sets = predictor.predict_set(data["probs"][8000:])
print(f"coverage {confide.metrics.coverage(sets, data['labels'][8000:]):.3f}")
print(f"mean size {confide.metrics.mean_size(sets):.2f}")
print(predictor.explain(data["probs"][8000:8001])[0])
