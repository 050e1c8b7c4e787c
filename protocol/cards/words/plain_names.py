"""The fields of a card under names that readers of another field know."""

# Names of fields that a reader of another field would not know.
PLAIN = {
    "alpha": "share not covered (alpha)",
    "beta": "part of alpha left to the mechanism (beta)",
    "kind": "kind of guarantee",
    "level": "guaranteed coverage",
    "minimum_reports": "fewest reports that are enough",
    "minimum_owners": "fewest owners that are enough",
    "max_corrupt": "false reports withstood",
    "planned": "records planned for",
    "slack": "slack of the published method",
    "crowd_epsilon": "epsilon in the plan's crowd",
    "unit": "whose privacy",
    "model": "SHA-256 of the model",
    "plan": "SHA-256 of the plan",
    "received": "answers received",
    "bins": "thresholds to choose from",
    "reach": "threshold in the target's unit",
    "mean_width": "mean width of intervals",
    "grid": "how the thresholds are spread",
    "coverage_at_most": "most that is covered, but for the scores in one bin",
    "gamma": "share of scores aimed at (gamma)",
    "black_box_floor": "coverage whatever the training did",
    "buffer_is": "where the buffer comes from",
    "coverage_deviation": "standard deviation of coverage",
    "delta_calibration": "delta of the calibration",
    "delta_train": "delta of the training",
    "epsilon_calibration": "epsilon of the calibration",
    "epsilon_loss": "epsilon of the noised error rates, in that of the training",
    "epsilon_train": "epsilon of the training",
    "failure_probability": "probability that the promise fails",
    "if_the_largest_lied": "if the largest owner lied",
    "inflation_ranks": "ranks above the exact one, at most",
    "inflation_share": "that as a share of the records",
    "level_after": "level left for later tests",
    "log_capital": "logarithm of the evidence",
    "log_evidence": "logarithm of the evidence",
    "lower_bound": "coverage at least",
    "max_inflation": "share of ranks above the exact one, at most",
    "mean_size": "mean size of sets",
    "never_selected_bound": "coverage of records that no step would have drawn",
    "noise_multiplier": "noise of a step, in clipping norms",
    "noise_variance": "variance of the noise on a count",
    "noised_by": "who adds the noise",
    "observed_inflation": "ranks above the exact one, as a share, measured",
    "records_per_client": "records of a client",
    "sampling_rate": "share of the records in a step",
    "selected_by": "what the selection looked at",
    "size_deviation": "standard deviation of the size",
    "smallest_owner": "records with which an owner can answer every round",
    "too_few": "owners left out, with too few records",
    "training_noise": "randomness of the training",
}


def heading_of(name: str) -> str:
    """Return the name of a field that is shown in its own row."""
    return PLAIN.get(name, in_text(name))


def in_text(name: str) -> str:
    """Return the name of a field among others in a line, where there is no room for more."""
    return name.replace("_", " ")
