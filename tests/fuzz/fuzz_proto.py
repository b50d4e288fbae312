"""Coverage-guided fuzzing of the proto reader and the verifier (needs the ``fuzz`` extra).

python -m tests.fuzz.fuzz_proto [-max_total_time=300] [other libFuzzer options]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.fuzz.coverage_guided import fuzz
from tests.fuzz.seeds import proto_seeds

if __name__ == "__main__":
    fuzz(proto_seeds, Path(tempfile.gettempdir()) / "spmd_fuzz_proto")
