"""`make test-gpu`: says which GPU is tested, or what is missing, and runs the tests beside this file, or those named.

    python -m tests.gpu [--double] [--tf32] [FILE ...] [options of pytest]

With --double they run on a double of a GPU, which says whether the tests themselves are in order.
Needs the packages of the gpu extra, pytest with pytest-timeout and hypothesis, no more. The tests with ranks are left out,
with a note, if MPI jobs cannot be started. Results are compared as those of f32 products, so none are made in TF32
(SPMD_GPU_TF32=off, also in ranks) unless --tf32 says otherwise.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.gpu.versions import missing_packages

HERE = Path(__file__).parent


def main() -> int:
    if "--tf32" in sys.argv:
        sys.argv.remove("--tf32")
    else:
        os.environ.setdefault("SPMD_GPU_TF32", "off")
    # Before anything of the project is imported, which an old ml_dtypes makes fail.
    if (reason := missing_packages()) is not None:
        print(f"not run: {reason}", file=sys.stderr)
        return 1
    if "--double" not in sys.argv:
        from runtime.gpu.availability import require_gpu
        from runtime.gpu.errors import NoGpuError

        try:
            count = require_gpu()
        except NoGpuError as error:
            print(f"not run on a GPU: {error}", file=sys.stderr)
            return 1
        from runtime.gpu.cuda.driver import CudaDriver  # imports CuPy

        for number in range(count):
            driver = CudaDriver(number)
            print(f"GPU {number}: {driver.name}, {driver.arch}, {driver.free_bytes:,} bytes free")
    from tests.mpi_available import why_no_mpi

    if reason := why_no_mpi():
        print(f"ranks are not tested: {reason}", file=sys.stderr)
    return _tests()


def _tests() -> int:
    import pytest

    # CuPy and CUDA's libraries warn of what is theirs. A file or folder that is named takes the place of testpaths.
    own = ["-o", f"testpaths={HERE}", f"--confcutdir={HERE}", "-W", "default", "--timeout=120"]
    return int(pytest.main([*own, "-q", *sys.argv[1:]]))


if __name__ == "__main__":
    sys.exit(main())
