"""Numbers that SCP prints: cited facts, coverage and mean size of sets or widths of intervals."""

Numbers = dict[str, float]


def _read(table: str, *columns: str) -> dict[tuple[int, float, str], Numbers]:
    """Lines of n, epsilon and method, then the columns."""
    read = {}
    for line in table.strip().splitlines():
        n, epsilon, method, *numbers = line.split()
        read[int(n), float(epsilon), method] = dict(zip(columns, map(float, numbers), strict=True))
    return read


# Tables S7, S8 and S9; means over 30 trials.
SETS = _read(
    """
    10000 0.5 scp-f 0.927 3.243 0.114
    10000 0.5 scp-a 0.902 2.976 0.149
    10000 0.5 split 0.904 3.339 0.060
    15000 0.5 scp-f 0.920 2.824 0.186
    15000 0.5 scp-a 0.905 2.662 0.214
    15000 0.5 split 0.908 3.064 0.120
    20000 0.5 scp-f 0.918 2.586 0.233
    20000 0.5 scp-a 0.906 2.470 0.258
    20000 0.5 split 0.907 2.857 0.161
    25000 0.5 scp-f 0.914 2.393 0.279
    25000 0.5 scp-a 0.904 2.298 0.302
    25000 0.5 split 0.908 2.729 0.190
    30000 0.5 scp-f 0.913 2.279 0.311
    30000 0.5 scp-a 0.905 2.202 0.332
    30000 0.5 split 0.907 2.537 0.235
    10000 1 scp-f 0.917 2.958 0.148
    10000 1 scp-a 0.905 2.828 0.168
    10000 1 split 0.904 3.288 0.063
    15000 1 scp-f 0.913 2.599 0.222
    15000 1 scp-a 0.905 2.519 0.238
    15000 1 split 0.908 3.016 0.123
    20000 1 scp-f 0.912 2.395 0.273
    20000 1 scp-a 0.905 2.336 0.286
    20000 1 split 0.907 2.813 0.168
    25000 1 scp-f 0.910 2.240 0.318
    25000 1 scp-a 0.904 2.192 0.331
    25000 1 split 0.908 2.681 0.197
    30000 1 scp-f 0.908 2.129 0.353
    30000 1 scp-a 0.904 2.091 0.364
    30000 1 split 0.907 2.496 0.239
    10000 2 scp-f 0.912 2.854 0.161
    10000 2 scp-a 0.905 2.778 0.174
    10000 2 split 0.904 3.266 0.066
    15000 2 scp-f 0.909 2.517 0.235
    15000 2 scp-a 0.904 2.469 0.246
    15000 2 split 0.909 3.014 0.122
    20000 2 scp-f 0.908 2.342 0.284
    20000 2 scp-a 0.905 2.310 0.292
    20000 2 split 0.908 2.799 0.170
    25000 2 scp-f 0.907 2.192 0.332
    25000 2 scp-a 0.904 2.164 0.340
    25000 2 split 0.908 2.666 0.199
    30000 2 scp-f 0.907 2.093 0.365
    30000 2 scp-a 0.904 2.071 0.371
    30000 2 split 0.906 2.485 0.242
    """,
    "coverage",
    "mean size",
    "singletons",
)
# Table 2: California housing, n = 16,512 to train and calibrate on; width in units of $100,000.
# The methods without privacy do not depend on epsilon and are printed once.
HOUSING = _read(
    """
    16512 0.5 scp-f 0.913 2.306
    16512 0.5 scp-a 0.898 2.119
    16512 0.5 split 0.898 2.193
    16512 1 scp-f 0.907 2.209
    16512 1 scp-a 0.899 2.113
    16512 1 split 0.898 2.183
    16512 2 scp-f 0.902 2.160
    16512 2 scp-a 0.898 2.109
    16512 2 split 0.898 2.187
    16512 1 naive 0.896 1.806
    16512 1 split-cp 0.898 1.917
    """,
    "coverage",
    "mean size",
)
