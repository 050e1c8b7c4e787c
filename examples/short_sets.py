"""From arrays to plotted, private prediction sets: epsilon 2, coverage 0.9 but for probability 0.1.

`letters.npz` holds class probabilities (n, K) and labels (n,), as any model gives them.
"""

import numpy as np

import confide

data = np.load("letters.npz")
held, new = slice(0, 8000), slice(8000, None)
made = confide.calibrate(data["probs"][held], data["labels"][held], epsilon=2.0, alpha=0.1)
sets = made.predictor.predict_set(data["probs"][new])
print(made)
print(f"coverage {confide.metrics.coverage(sets, data['labels'][new]):.3f}")
print(f"mean size {confide.metrics.mean_size(sets):.2f}")
confide.plots.set_sizes(sets, data["labels"][new]).figure.savefig("sizes.png")
