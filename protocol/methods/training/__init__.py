"""Method training: DP-SGD at every owner, weights averaged between rounds."""
