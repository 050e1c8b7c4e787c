"""Tutorial: private prediction sets of a torch classifier, published as a card.

A provider trains a network on 4,000 letters of its own. The calibration records are somebody
else's: each answers with one randomised bit. Whoever has the card then predicts with the network.
"""

import warnings
from pathlib import Path

import numpy as np
import torch
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import confide
from confide.protocol.simulated.embedded import letters

OWN, HELD, NEW = slice(0, 4000), slice(4000, 14000), slice(14000, 20000)


def train(features: torch.Tensor, labels: torch.Tensor) -> torch.nn.Module:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 64), torch.nn.ReLU(), torch.nn.Linear(64, 26), torch.nn.Softmax(dim=1)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(100):
        optimizer.zero_grad()
        torch.nn.functional.nll_loss(torch.log(model(features) + 1e-9), labels).backward()
        optimizer.step()
    return model.eval()


def main() -> None:
    features, labels = (torch.from_numpy(part) for part in letters())
    probs = train(features[OWN].float(), labels[OWN])(features.float())
    # A seed repeats this tutorial, and makes the card a simulation. Leave it out for real records.
    made = confide.calibrate(probs[HELD], labels[HELD], score="aps", epsilon=2.0, seed=1)
    print(made)

    key = Ed25519PrivateKey.generate()
    Path("card.json").write_text(made.card(key).to_json())
    public = key.public_key().public_bytes_raw().hex()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        predictor = confide.Predictor.from_card("card.json", key=public, simulation=True)
    print("warning:", said[0].message)
    sets = predictor.predict_set(probs[NEW])
    print(f"sets are a {type(sets).__name__} of {sets.dtype}, {tuple(sets.shape)}")
    print(f"coverage {confide.metrics.coverage(sets, labels[NEW]):.3f}")
    print(f"mean size {confide.metrics.mean_size(sets):.2f}")
    print(f"worst class {np.nanmin(confide.metrics.class_coverage(sets, labels[NEW])):.2f}")
    print(predictor.explain(probs[NEW][:1])[0])
    confide.plots.by_class(sets, labels[NEW], alpha=0.1).figure.savefig("classes.png")


if __name__ == "__main__":
    main()
