"""Prediction sets with MAPIE, without privacy."""

import matplotlib.pyplot as plt
import numpy as np
from mapie.classification import SplitConformalClassifier
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

data = np.load("letters.npz")
x, y = data["features"], data["labels"]
model = LinearDiscriminantAnalysis().fit(data["own_features"], data["own_labels"])
conformal = SplitConformalClassifier(model, confidence_level=0.9, prefit=True)
conformal.conformalize(x[:8000], y[:8000])
sets = conformal.predict_set(x[8000:])[1][:, :, 0]
print(f"coverage {sets[np.arange(len(sets)), y[8000:]].mean():.3f}")
print(f"mean size {sets.sum(axis=1).mean():.2f}")
plt.hist(sets.sum(axis=1))
plt.savefig("sizes.png")
