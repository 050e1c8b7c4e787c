"""Central mechanisms, and calibration on the records of a training."""
