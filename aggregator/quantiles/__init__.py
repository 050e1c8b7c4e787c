"""Central quantile mechanisms: a private threshold from a histogram of scores on a public grid."""
