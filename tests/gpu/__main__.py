"""`make test-gpu`: says which GPU is tested, or what is missing, and runs the tests beside this file.

With --double they run on a double of a GPU, which says whether the tests themselves are in order.
Needs the packages of the gpu extra and pytest with pytest-timeout, no more: not what the rest of the tests needs.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from runtime.gpu.availability import require_gpu
from runtime.gpu.errors import NoGpuError

HERE = Path(__file__).parent


def main() -> int:
    if "--double" in sys.argv:
        return _tests()
    try:
        count = require_gpu()
    except NoGpuError as error:
        print(f"not run on a GPU: {error}", file=sys.stderr)
        return 1
    from runtime.gpu.cuda import CudaDriver  # imports CuPy

    for number in range(count):
        driver = CudaDriver(number)
        print(f"GPU {number}: {driver.name}, {driver.arch}, {driver.free_bytes:,} bytes free")
    return _tests()


def _tests() -> int:
    # CuPy and CUDA's libraries warn of what is theirs.
    own = [str(HERE), f"--confcutdir={HERE}", "-W", "default", "--timeout=120", "-q"]
    return int(pytest.main([*own, *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
