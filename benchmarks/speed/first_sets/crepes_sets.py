"""Prediction sets with crepes, without privacy."""

import matplotlib.pyplot as plt
import numpy as np
from crepes import WrapClassifier
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

data = np.load("letters.npz")
x, y = data["features"], data["labels"]
model = LinearDiscriminantAnalysis().fit(data["own_features"], data["own_labels"])
wrapped = WrapClassifier(model)
wrapped.calibrate(x[:8000], y[:8000])
sets = wrapped.predict_set(x[8000:], confidence=0.9, labels=False)
print(f"coverage {sets[np.arange(len(sets)), y[8000:]].mean():.3f}")
print(f"mean size {sets.sum(axis=1).mean():.2f}")
plt.hist(sets.sum(axis=1))
plt.savefig("sizes.png")
