"""Prediction sets with TorchCP, without privacy."""

import matplotlib.pyplot as plt
import numpy as np
import torch
from torchcp.classification.predictor import SplitPredictor
from torchcp.classification.score import LAC

data = np.load("letters.npz")
probs, labels = torch.tensor(data["probs"]), torch.tensor(data["labels"])
predictor = SplitPredictor(LAC(score_type="identity"), alpha=0.1)
predictor.calculate_threshold(probs[:8000], labels[:8000])
sets = predictor.predict_with_logits(probs[8000:])
print(f"coverage {sets[torch.arange(len(sets)), labels[8000:]].float().mean():.3f}")
print(f"mean size {sets.sum(dim=1).float().mean():.2f}")
plt.hist(sets.sum(dim=1))
plt.savefig("sizes.png")
