"""Compare two .npz files bit by bit: python -m benchmarks.defects.same_bits A.npz B.npz

Exits with 1 and names the first array that differs, if there is one.
"""

from __future__ import annotations

import sys

import numpy as np


def main() -> int:
    first, second = (np.load(path) for path in sys.argv[1:3])
    if sorted(first.files) != sorted(second.files):
        print(f"the files hold different arrays: {first.files} and {second.files}")
        return 1
    for name in first.files:
        a, b = first[name], second[name]
        if a.dtype != b.dtype or a.shape != b.shape or a.tobytes() != b.tobytes():
            print(f"{name} differs")
            return 1
    print(f"{len(first.files)} arrays have the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
