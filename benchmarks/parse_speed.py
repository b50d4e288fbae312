"""Time how fast HLO text is read (every attribute typed), verified and printed, beside jaxlib's parser.

    python -m benchmarks.parse_speed [FILE ...] [--repeat 3] [--json FILE]

Times are CPU seconds of this process, the best of the repetitions. Without a FILE it reads the Mixtral module of
../shared/public. jaxlib's figure is printed where the ``jax`` extra is installed (its reading also infers shapes).
Exits 1 below 100,000 instructions per second or above 5 s of verification.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.verifier import verify

T = TypeVar("T")
MIXTRAL = Path(__file__).parents[2] / "shared" / "public" / "hlo_mixtral_8x7b_bf16_1x8.hlo"
LEAST_PER_SECOND = 100_000
MOST_SECONDS = 5.0


def best_of(repeat: int, action: Callable[[], T]) -> tuple[float, T]:
    """Fewest CPU seconds, and what the action gave."""
    best, value = float("inf"), None
    for _ in range(repeat):
        value = None  # the last result would be freed inside the measured time
        gc.collect()
        start = time.process_time()
        value = action()
        best = min(best, time.process_time() - start)
    assert value is not None
    return best, value


def measure(path: Path, repeat: int) -> dict[str, Any]:
    text = path.read_text(encoding="utf-8")
    read_s, module = best_of(repeat, lambda: parse_module(text, path.name))
    verify_s, _ = best_of(repeat, lambda: (verify(module),))
    print_s, _ = best_of(repeat, lambda: print_module(module))
    count = module.instruction_count
    return {
        "file": path.name,
        "megabytes": round(len(text) / 1e6, 2),
        "instructions": count,
        "read_s": round(read_s, 3),
        "instructions_per_s": round(count / read_s),
        "verify_s": round(verify_s, 3),
        "print_s": round(print_s, 3),
        "jaxlib_read_s": _jaxlib(text, repeat),
    }


def _jaxlib(text: str, repeat: int) -> float | None:
    try:
        from jaxlib import _hlo
    except ImportError:
        return None
    return round(best_of(repeat, lambda: _hlo.hlo_module_from_text(text))[0], 3)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    files = args.files or [MIXTRAL]
    missing = [path for path in files if not path.is_file()]
    if missing:
        print(f"no such file: {missing[0]}", file=sys.stderr)
        return 2
    rows = [measure(path, args.repeat) for path in files]
    for row in rows:
        print("  ".join(f"{key}={value}" for key, value in row.items()))
    if args.json is not None:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    slow = [
        row
        for row in rows
        if row["instructions_per_s"] < LEAST_PER_SECOND or row["verify_s"] > MOST_SECONDS
    ]
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
