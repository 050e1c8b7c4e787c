"""Times other packages for speed.py, in an environment of their own.

The first line printed names what can be measured: {"ways": [...], "versions": {...}, "missing":
{package: reason}}. Then every line read from standard input is a way, answered by {"seconds": ...,
"result": ...} or {"error": ...}; the result is a threshold, or the mean size of sets. A way is
"<task> <package> <how>"; where a package offers more than one, speed.py takes the fastest.
"""

import importlib.util
import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import numpy as np

Way = Callable[[], float | None]

ALPHA, EPSILON, K = 0.1, 1.0, 10
TURN = 0.02


def mapie(probs: np.ndarray, labels: np.ndarray) -> dict[str, Way]:
    """Its APS is always randomised."""
    from mapie.classification import SplitConformalClassifier
    from mapie.conformity_scores import APSConformityScore, LACConformityScore
    from sklearn.base import BaseEstimator, ClassifierMixin

    classes, alphas = np.arange(probs.shape[1]), np.array([ALPHA])
    features = np.zeros((len(probs), 1))

    class Stored(ClassifierMixin, BaseEstimator):
        """A fitted classifier that returns the stored probabilities."""

        def __init__(self) -> None:
            self.classes_ = classes

        def fit(self, x: np.ndarray, y: np.ndarray) -> "Stored":
            return self

        def predict(self, x: np.ndarray) -> np.ndarray:
            return probs.argmax(axis=1)

        def predict_proba(self, x: np.ndarray) -> np.ndarray:
            return probs

    def pipeline(score: type) -> Way:
        def run() -> float:
            function = score()
            fitted = SplitConformalClassifier(
                Stored(), 1 - ALPHA, function, prefit=True
            ).conformalize(features, labels)
            return float(
                function.get_conformity_score_quantiles(fitted.conformity_scores, alphas, "prefit")[
                    0
                ]
            )

        return run

    def scores_only(score: type) -> Way:
        def run() -> float:
            function = score()
            function.set_external_attributes(classes=classes, random_state=0)
            scores = function.get_conformity_scores(labels, probs, y_enc=labels)
            return float(function.get_conformity_score_quantiles(scores, alphas, "prefit")[0])

        return run

    def predicting() -> Way:
        fitted: list[SplitConformalClassifier] = []

        def run() -> float:
            if not fitted:
                made = SplitConformalClassifier(
                    Stored(), 1 - ALPHA, APSConformityScore(), prefit=True
                )
                fitted.append(made.conformalize(features, labels))
            return float(fitted[0].predict_set(features)[1].sum() / len(features))

        return run

    return {
        "sets MAPIE classifier": predicting(),
        "aps MAPIE classifier": pipeline(APSConformityScore),
        "aps MAPIE score": scores_only(APSConformityScore),
        "lac MAPIE classifier": pipeline(LACConformityScore),
        "lac MAPIE score": scores_only(LACConformityScore),
    }


def one_thread(run: Way) -> Way:
    """Two threads of torch wait for each other where the machine is busy; one does not."""

    def alone() -> float | None:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return run()
        finally:
            torch.set_num_threads(threads)

    return alone


def torchcp(probs: np.ndarray, labels: np.ndarray) -> dict[str, Way]:
    """Import only the score and predictor modules of the package.

    The package itself imports graph and language models.
    """
    spec = importlib.util.find_spec("torchcp")
    if spec is None:
        raise ModuleNotFoundError("No module named 'torchcp'")
    root = Path(spec.submodule_search_locations[0])
    for name, folder in (("torchcp", root), ("torchcp.classification", root / "classification")):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]
    import torch
    from torchcp.classification.predictor import SplitPredictor
    from torchcp.classification.score import APS, LAC

    tensors = torch.from_numpy(probs), torch.from_numpy(labels)

    def way(score: object) -> Way:
        predictor = SplitPredictor(score, alpha=ALPHA)

        def run() -> float:
            predictor.calculate_threshold(*tensors)
            return float(predictor.q_hat)

        return run

    def predicting() -> Way:
        predictor = SplitPredictor(APS(score_type="identity", randomized=False), alpha=ALPHA)
        predictor.calculate_threshold(*tensors)
        return lambda: float(predictor.predict_with_logits(tensors[0]).sum() / len(labels))

    ways = {
        "sets torchcp predictor": predicting(),
        "aps torchcp predictor": way(APS(score_type="identity", randomized=False)),
        "lac torchcp predictor": way(LAC(score_type="identity")),
    }
    return ways | {f"{name}-one-thread": one_thread(run) for name, run in ways.items()}


def puncc(probs: np.ndarray, labels: np.ndarray) -> dict[str, Way]:
    """It takes arrays and tensors."""
    import torch
    from deel.puncc.api.calibration import BaseCalibrator
    from deel.puncc.api.nonconformity_scores import lac_score, raps_score_builder
    from deel.puncc.api.prediction import BasePredictor
    from deel.puncc.api.prediction_sets import lac_set, raps_set_builder
    from deel.puncc.classification import APS, LAC

    class Identity:
        """A trained model whose features are the probabilities."""

        def predict(self, x: object) -> object:
            return x

    def pipeline(make: Callable[..., object], x: object, y: object, **options: bool) -> Way:
        def run() -> float:
            fitted = make(BasePredictor(Identity(), is_trained=True), train=False, **options)
            fitted.fit(X_calib=x, y_calib=y)
            return float(fitted.calibrator.compute_quantile(alpha=ALPHA))

        return run

    def scores_only(
        score: Callable[..., object], sets: Callable[..., object], x: object, y: object
    ) -> Way:
        def run() -> float:
            calibrator = BaseCalibrator(nonconf_score_func=score, pred_set_func=sets)
            calibrator.fit(y_true=y, y_pred=x)
            return float(calibrator.compute_quantile(alpha=ALPHA))

        return run

    def predicting(x: object, y: object) -> Way:
        calibrator = BaseCalibrator(nonconf_score_func=aps_score, pred_set_func=aps_set)
        calibrator.fit(y_true=y, y_pred=x)
        quantile = float(calibrator.compute_quantile(alpha=ALPHA))
        return lambda: float(np.mean([len(one) for one in aps_set(x, quantile)[0]]))

    ways: dict[str, Way] = {}
    aps_score, aps_set = raps_score_builder(rand=False), raps_set_builder(rand=False)
    for kind, x, y in (
        ("array", probs, labels),
        ("tensor", torch.from_numpy(probs), torch.from_numpy(labels)),
    ):
        ways[f"sets puncc set-{kind}"] = predicting(x, y)
        ways[f"aps puncc classifier-{kind}"] = pipeline(APS, x, y, rand=False)
        ways[f"aps puncc score-{kind}"] = scores_only(aps_score, aps_set, x, y)
        ways[f"lac puncc classifier-{kind}"] = pipeline(LAC, x, y)
        ways[f"lac puncc score-{kind}"] = scores_only(lac_score, lac_set, x, y)
    return ways | {
        f"{name}-one-thread": one_thread(run)
        for name, run in ways.items()
        if name.endswith("score-tensor")
    }


def pure_ldp(probs: np.ndarray, labels: np.ndarray) -> dict[str, Way]:
    """Direct encoding is k-RR; its clients privatise one label at a time, counted from 1."""
    from pure_ldp.frequency_oracles.direct_encoding import DEClient

    client = DEClient(EPSILON, K)
    values = (labels % K + 1).tolist()

    def run() -> None:
        for value in values:
            client.privatise(value)

    return {"k-rr pure-ldp client": run}


def timed(run: Way) -> tuple[float, float | None]:
    """Seconds and result; where one run takes less than TURN, the least of several.

    `turns.py` does the same.
    """
    first, least, result = time.perf_counter(), float("inf"), None
    while (started := time.perf_counter()) - first < TURN:
        result = run()
        least = min(least, time.perf_counter() - started)
    return least, result


PEERS = {"MAPIE": mapie, "torchcp": torchcp, "puncc": puncc, "pure-ldp": pure_ldp}


def main() -> None:
    answers, sys.stdout = sys.stdout, sys.stderr
    warnings.simplefilter("ignore")
    with np.load(sys.argv[1]) as data:
        probs, labels = data["probs"], data["labels"]
    ways: dict[str, Way] = {}
    versions, missing = {}, {}
    for package, make in PEERS.items():
        try:
            ways |= make(probs, labels)
            versions[package] = version(package)
        except (
            Exception
        ) as error:  # Whatever another package raises is a reason to print, not to stop.
            missing[package] = f"{type(error).__name__}: {error}"

    def say(answer: dict[str, object]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    say({"ways": list(ways), "versions": versions, "missing": missing})
    for line in sys.stdin:
        try:
            seconds, result = timed(ways[line.strip()])
            say({"seconds": seconds, "result": result})
        except Exception as error:
            say({"error": f"{type(error).__name__}: {error}"})


if __name__ == "__main__":
    main()
