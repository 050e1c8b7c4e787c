"""Numbers that LDP prints in Table 1: cited facts, means over 100 splits."""

_LINES = """
OCTMNIST Not-Private-CP 2.57 90.06 2.61 90.06
OCTMNIST LDP-CP-L 2.56 89.99 2.61 90.02
OCTMNIST LDP-CP-S 2.58 90.21 2.67 90.84
OCTMNIST LDP-CP-L* 2.76 92.22 2.79 92.28
OCTMNIST LDP-CP-S* 2.97 94.38 2.99 94.35
TissueMNIST Not-Private-CP 5.55 90 5.58 89.96
TissueMNIST LDP-CP-L 5.54 89.97 5.58 89.97
TissueMNIST LDP-CP-S 6.12 95.35 5.61 90.32
TissueMNIST LDP-CP-L* 5.71 91.68 5.76 91.7
TissueMNIST LDP-CP-S* 6.12 95.35 5.83 92.32
OrganSMNIST Not-Private-CP 1.93 90.09 2.35 90.1
OrganSMNIST LDP-CP-L 1.88 89.49 2.3 89.63
OrganSMNIST LDP-CP-S 1.61 84.81 2.09 87.38
OrganSMNIST LDP-CP-L* 2.77 95.35 3.35 95.45
OrganSMNIST LDP-CP-S* 3.9 97.75 4.75 98.4
OrganAMNIST Not-Private-CP 1.19 89.99 1.61 90.02
OrganAMNIST LDP-CP-L 1.31 92.17 1.6 89.94
OrganAMNIST LDP-CP-S 1.15 88.89 1.67 90.35
OrganAMNIST LDP-CP-L* 1.43 93.62 1.89 93.51
OrganAMNIST LDP-CP-S* 1.88 96.52 2.44 96.8
OrganCMNIST Not-Private-CP 1.18 89.99 1.56 90.02
OrganCMNIST LDP-CP-L 1.3 91.96 1.52 89.36
OrganCMNIST LDP-CP-S 0.95 82.44 1.39 86.59
OrganCMNIST LDP-CP-L* 1.63 95.21 2.05 95.21
OrganCMNIST LDP-CP-S* 2.47 98.18 2.9 98.15
"""
# A line has size and coverage (%) with HPS, then with APS.
TABLE_1 = {
    (data, score, method): {
        "size": float(numbers[2 * place]),
        "coverage": round(float(numbers[2 * place + 1]) / 100, 6),
    }
    for data, method, *numbers in map(str.split, _LINES.strip().splitlines())
    for place, score in enumerate(("HPS", "APS"))
}
