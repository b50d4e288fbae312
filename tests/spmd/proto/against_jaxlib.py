"""XLA reads our protos as it reads the texts, and we read XLA's protos as we read its texts (needs the jax extra).

    python -m tests.spmd.proto.against_jaxlib FOLDER...

XLA ends its process on some texts, so they go through worker processes: one that dies is counted, and the next one goes on
behind the text that ended it. Exits 1 when anything differs.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from spmd.errors import SpmdError
from spmd.hlo import HloModule
from spmd.proto.reader import parse_proto
from spmd.proto.writer import serialize
from spmd.text.parser import parse_module
from spmd.text.printer import print_module

if TYPE_CHECKING:
    from jaxlib._hlo import HloModule as XlaModule

#: An HloModuleProto has no configuration; what it has of the counts, a device assignment, XLA's printer does not use.
_CONFIGURATION = re.compile(
    r", (?:(?:num_partitions|replica_count)=\d+|alias_passthrough_params=true"
    r"|allow_spmd_sharding_propagation_to_\w+=\{[^}]*\})"
)
#: XLA's text reader drops the sign of a zero; the proto keeps it.
_ZERO = re.compile(r"-0(?![\d.])")
#: A collective's mode has no field.
_MODE = re.compile(r", mode=\w+")
SAME = "same"


def outcome(text: str) -> str:
    """``SAME``, why the text says nothing, or ``differs: ...``."""
    from jaxlib import _hlo

    try:
        module = parse_module(text)
    except SpmdError:
        return "we refuse it"
    if "{...}" in text:
        return "elided constants, for which XLA invents values"
    try:
        theirs = _hlo.hlo_module_from_text(text)
    except RuntimeError:
        return "XLA refuses it"
    ours = _hlo.HloModule.from_serialized_hlo_module_proto(serialize(module))
    if difference := _difference(_xla_text(theirs), _xla_text(ours)):
        return f"differs: XLA reads our proto otherwise than the text\n{difference}"
    return _reading_outcome(theirs)


def _reading_outcome(theirs: XlaModule) -> str:
    """We read XLA's proto as the text that XLA prints."""
    try:
        from_text = parse_module(_xla_text(theirs))
    except SpmdError as error:
        return f"XLA's own text is no text: {str(error).splitlines()[0]}"
    from_proto = parse_proto(theirs.as_serialized_hlo_module_proto())
    difference = _difference(_our_text(from_text), _our_text(from_proto))
    return (
        f"differs: we read XLA's proto otherwise than its text\n{difference}"
        if difference
        else SAME
    )


def _our_text(module: HloModule) -> str:
    """Computations by name: XLA prints them in another post-order than it writes them."""
    header, *computations = print_module(module, as_dump=True).split("\n\n")
    return plain("\n\n".join((header, *sorted(part.strip() for part in computations))))


def _xla_text(module: XlaModule) -> str:
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.print_large_constants = True
    return plain(module.to_string(options))


def plain(text: str) -> str:
    return _MODE.sub("", _ZERO.sub("0", _CONFIGURATION.sub("", text)))


def _difference(before: str, after: str) -> str:
    if before == after:
        return ""
    changed = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0)
    return "\n".join(line[:300] for line, _ in zip(changed, range(12), strict=False))


# ---- many texts, in workers
def outcomes(paths: list[Path]) -> Iterator[tuple[Path, str]]:
    """Each path's outcome, also of those that end the worker."""
    done = 0
    while done < len(paths):
        worker = subprocess.Popen(
            [sys.executable, "-m", "tests.spmd.proto.against_jaxlib", "--worker", *paths[done:]],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert worker.stdout is not None
        for line in worker.stdout:
            yield paths[done], json.loads(line)
            done += 1
        if worker.wait() and done < len(paths):
            yield paths[done], "ends XLA's process"
            done += 1


def _work(paths: list[Path]) -> None:
    for path in paths:
        try:
            found = outcome(path.read_text(encoding="utf-8"))
        except (RuntimeError, SpmdError) as error:
            found = f"differs: {type(error).__name__}: {str(error)[:500]}"
        print(json.dumps(found), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("paths", nargs="+", type=Path)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        _work(options.paths)
        return 0
    paths = [p for f in options.paths for p in (sorted(f.rglob("*.hlo")) if f.is_dir() else [f])]
    tally: Counter[str] = Counter()
    for path, found in outcomes(paths):
        tally[found.split(":")[0]] += 1
        if ":" in found:
            print(f"{path}: {found}")
    for kind, count in sorted(tally.items()):
        print(f"{count:7} {kind}")
    return int(tally["differs"] > 0)


if __name__ == "__main__":
    sys.exit(main())
