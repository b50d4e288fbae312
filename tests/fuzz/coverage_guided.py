"""Shared parts of the two atheris fuzzers: instrument the readers, write the seeds, judge each input.

An input that ends in anything but a module or one SpmdError, or takes too long, ends the run and is written to a file
crash-* (libFuzzer's way), which ``python -m tests.fuzz.fuzz_text crash-...`` runs again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris  # type: ignore[import-not-found]  # the `fuzz` extra

with atheris.instrument_imports(include=["spmd"]):
    import spmd.proto
    import spmd.text.sources.load
    import spmd.verifier  # noqa: F401 - imported here to be instrumented

from tests.fuzz.outcome import read_verify_print

#: libFuzzer's limits: seconds of wall time for one input, MiB of memory, bytes of an input.
LIMITS = ["-timeout=20", "-rss_limit_mb=2048", "-max_len=8192"]


def fuzz(seeds: Callable[[], Iterable[bytes]], folder: Path) -> None:
    """Write ``seeds`` to ``folder`` and fuzz from there; further arguments are libFuzzer's."""
    if not any(argument.startswith("crash-") for argument in sys.argv[1:]):
        folder.mkdir(parents=True, exist_ok=True)
        for number, seed in enumerate(seeds()):
            (folder / f"seed_{number}").write_bytes(seed)
        sys.argv = [sys.argv[0], str(folder), *LIMITS, *sys.argv[1:]]
    atheris.Setup(sys.argv, _one_input)
    atheris.Fuzz()


def _one_input(data: bytes) -> None:
    end = read_verify_print(data)
    if end.startswith("finding"):
        raise AssertionError(end)
