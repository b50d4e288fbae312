"""Coverage-guided fuzzing of the text reader and the verifier (needs the ``fuzz`` extra).

python -m tests.fuzz.fuzz_text [-max_total_time=300] [-dict=tests/fuzz/hlo.dict] [other libFuzzer options]
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.fuzz.coverage_guided import fuzz
from tests.fuzz.seeds import excerpt, text_seeds

LONGEST = 8_000


def seeds() -> Iterator[bytes]:
    for number, text in enumerate(text_seeds()):
        small = text if len(text) <= LONGEST else excerpt(text, random.Random(number))
        yield small.encode()[:LONGEST]


if __name__ == "__main__":
    fuzz(seeds, Path(tempfile.gettempdir()) / "spmd_fuzz_text")
