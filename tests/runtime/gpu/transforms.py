"""Programs of transforms, for doubles and for GPUs, and what is asked of them."""

from __future__ import annotations

import numpy as np

from runtime.executable import Executable
from spmd.evaluator.evaluator import evaluate
from tests.runtime.programs import random_inputs

HEAD = "HloModule transforms\nENTRY main {\n  "
TRANSFORMS = {
    "fft": HEAD
    + """x = c64[3,8] parameter(0)
  y = c64[3,8] fft(x), fft_type=FFT, fft_length={8}
  ROOT z = c64[3,8] add(y, y)
}
""",
    "ifft 2d": HEAD
    + """x = c128[2,6,10] parameter(0)
  ROOT y = c128[2,6,10] fft(x), fft_type=IFFT, fft_length={6,10}
}
""",
    "rfft 2d": HEAD
    + """x = f32[2,6,9] parameter(0)
  ROOT y = c64[2,6,5] fft(x), fft_type=RFFT, fft_length={6,9}
}
""",
    "irfft": HEAD
    + """x = c64[4,5] parameter(0)
  ROOT y = f32[4,9] fft(x), fft_type=IRFFT, fft_length={9}
}
""",
    "irfft 2d": HEAD
    + """x = c128[4,7,5] parameter(0)
  ROOT y = f64[4,7,8] fft(x), fft_type=IRFFT, fft_length={7,8}
}
""",
}


def check_transforms(executable: Executable) -> None:
    """Nothing is left to the host, and results are the evaluator's."""
    forms = executable.kernel_report
    assert forms is not None
    assert not forms.hosted
    for seed in (0, 1, 2):
        inputs = random_inputs(executable.module, seed)
        (got,), (want,) = executable.run(*inputs), evaluate(executable.module, *inputs)
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
