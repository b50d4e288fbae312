"""Mutated protos: each must end in a module or in one SpmdError, soon and in little memory.

    python -m tests.spmd.proto.mutate --count 100000 [--seed N] [FILE.pb ...]

Prints each input that does otherwise, as (seed, number), and the worst time and memory; exits 1 if there was one.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import spmd
from spmd.errors import SpmdError
from spmd.proto.schema.hlo import HloInstructionProto, HloModuleProto
from spmd.proto.wire import Raw
from spmd.proto.writer import serialize
from spmd.text.sources.load import parse_bytes
from tests.paths import CASES
from tests.spmd.proto.examples import TEXTS, example

#: Seconds that one input may take.
LIMIT = 2.0
_EDGES = (b"\x00", b"\x7f", b"\x80", b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80" * 12)


def originals() -> list[bytes]:
    """Every opcode and attribute, and what JAX wrote."""
    own = [serialize(example(name)) for name in TEXTS]
    return own + [path.read_bytes() for path in sorted(CASES.glob("*/module.pb"))]


# ---- one change of the bytes
def _low_bits(data: bytearray, draw: random.Random) -> None:
    """Another value in a byte that leaves the lengths of varints as they are: reaches deep into the readers."""
    at = draw.randrange(len(data))
    data[at] = data[at] & 0x80 | draw.randrange(128)


def _one_bit(data: bytearray, draw: random.Random) -> None:
    data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _edge(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data))
    edge = draw.choice(_EDGES)
    data[at : at + draw.choice((0, 1, len(edge)))] = edge


def _cut(data: bytearray, draw: random.Random) -> None:
    del data[draw.randrange(len(data)) :]


def _remove(data: bytearray, draw: random.Random) -> None:
    at = draw.randrange(len(data))
    del data[at : at + draw.randrange(1, 40)]


def _repeat(data: bytearray, draw: random.Random) -> None:
    at, size = draw.randrange(len(data)), draw.randrange(1, 200)
    data[at:at] = data[at : at + size]


def _move(data: bytearray, draw: random.Random) -> None:
    """Bytes of one place over those of another."""
    source, target, size = (
        draw.randrange(len(data)),
        draw.randrange(len(data)),
        draw.randrange(1, 16),
    )
    data[target : target + size] = data[source : source + size]


_CHANGES: tuple[Callable[[bytearray, random.Random], None], ...] = (
    *(_low_bits,) * 6,
    *(_one_bit,) * 2,
    _edge,
    _cut,
    _remove,
    _repeat,
    _move,
)


def crossed(data: bytes, draw: random.Random, donors: list[HloInstructionProto]) -> bytes:
    """One instruction takes some fields of others, or edge values; all lengths stay right, so every reader is met."""
    module = HloModuleProto(data)
    computations = list(module.computations)
    computation = draw.choice(computations)
    instructions = list(computation.instructions)
    for _ in range(draw.choice((1, 1, 2))):
        raws, donor = draw.choice(instructions).raws, draw.choice(donors).raws
        number = draw.choice(sorted(donor))
        raws[number] = [_edged(raw, draw) if draw.random() < 0.5 else raw for raw in donor[number]]
    computation.instructions = instructions
    module.computations = computations
    return bytes(module)


def _edged(raw: Raw, draw: random.Random) -> Raw:
    if isinstance(raw, int):
        return draw.choice((0, 1, 2, 7, 1 << 31, (1 << 63) - 1, 1 << 63, (1 << 64) - 1))
    changed = bytearray(raw)
    if changed:
        draw.choice((_low_bits, _one_bit))(changed, draw)
    return bytes(changed)


def mutation(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        if changed:
            draw.choice(_CHANGES)(changed, draw)
    return bytes(changed)


def mutations(count: int, seed: int, data: list[bytes]) -> Iterator[bytes]:
    """Every third one keeps the lengths of its parts right."""
    draw = random.Random(seed)
    donors = [
        x
        for name in TEXTS
        for c in HloModuleProto(serialize(example(name))).computations
        for x in c.instructions
    ]
    for number in range(count):
        original = draw.choice(data)
        yield mutation(original, draw) if number % 3 else crossed(original, draw, donors)


def carry(data: bytes) -> bool:
    """Read, verify, print and write again; whether it was a module."""
    try:
        module = parse_bytes(data, "mutated")
        str(module)
        spmd.verify(module)
        serialize(module)
    except SpmdError:
        return False
    return True


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    data = [path.read_bytes() for path in options.files] or originals()
    failures = modules = 0
    worst = 0.0
    for number, changed in enumerate(mutations(options.count, options.seed, data)):
        start = time.perf_counter()
        try:
            modules += carry(changed)
        except Exception:  # noqa: BLE001 - any other exception is what is looked for
            failures += 1
            print(f"({options.seed}, {number}):\n{traceback.format_exc(limit=-4)}")
        seconds = time.perf_counter() - start
        worst = max(worst, seconds)
        if seconds > LIMIT:
            failures += 1
            print(f"({options.seed}, {number}): {seconds:.1f} s")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(
        f"{options.count} mutations: {modules} modules, {failures} failures, "
        f"worst {worst:.2f} s, peak {peak} MiB"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
