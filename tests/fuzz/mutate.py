"""Mutate modules and see that each ends in a module or one SpmdError, within 2 s of CPU time and 1 GiB.

    python -m tests.fuzz.mutate --count 100000 --seed 0 [--kind text|proto|both] [--findings FOLDER]

Input number i of a seed is always the same. Inputs run in a worker process under a limit on its address space; a worker
that dies is a finding, and the next one goes on behind the input that killed it. Exits 1 when there are findings.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import random
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz.mutations import mutate_bytes, mutate_text
from tests.fuzz.outcome import MAX_BYTES, judge
from tests.fuzz.seeds import draw_text, proto_seeds
from tests.paths import ROOT

SHOWN = 5


def make_input(seed: int, number: int, kind: str) -> bytes:
    """Input ``number`` of the sequence ``seed``; kind "both" takes every fourth one from protos."""
    rng = random.Random(f"{seed}/{number}")
    if kind == "proto" or (kind == "both" and number % 4 == 3):
        return mutate_bytes(rng.choice(proto_seeds()), rng)
    return mutate_text(draw_text(rng), rng)


@dataclass
class Tally:
    """Counts and findings of the inputs so far."""

    ends: Counter[str] = field(default_factory=Counter)
    findings: list[tuple[int, str]] = field(default_factory=list)
    slowest: list[tuple[float, int, int]] = field(default_factory=list)
    largest: list[tuple[int, int, int]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, number: int, end: str, seconds: float, peak: int, size: int) -> None:
        is_finding = end.startswith("finding")
        self.ends["finding" if is_finding else end] += 1
        if is_finding:
            self.findings.append((number, end))
        self.seconds += seconds
        for heap, value in ((self.slowest, seconds), (self.largest, peak)):
            heapq.heappush(heap, (value, number, size))  # type: ignore[arg-type]
            if len(heap) > SHOWN:
                heapq.heappop(heap)

    def report(self) -> str:
        lines = [f"{count:8d}  {end}" for end, count in self.ends.most_common()]
        lines += ["slowest (CPU s, input, bytes of it):"]
        lines += [
            f"  {s:8.3f}  #{number}  {size}"
            for s, number, size in sorted(self.slowest, reverse=True)
        ]
        lines += ["largest (MiB above the start, input, bytes of it):"]
        lines += [
            f"  {p / 2**20:8.1f}  #{number}  {size}"
            for p, number, size in sorted(self.largest, reverse=True)
        ]
        lines += [f"finding #{number}: {end}" for number, end in self.findings[:40]]
        return "\n".join(lines)


def run(count: int, seed: int, kind: str, first: int = 0) -> Tally:
    """Inputs ``first`` .. ``first + count - 1`` in worker processes."""
    tally = Tally()
    done, last = first, first + count
    while done < last:
        for number, end, seconds, peak, size in _worker(seed, kind, done, last):
            tally.add(number, end, seconds, peak, size)
            done = number + 1
        if done < last:
            tally.add(done, "finding: the worker died", 0.0, 0, len(make_input(seed, done, kind)))
            done += 1
    return tally


def _worker(
    seed: int, kind: str, first: int, last: int
) -> Iterator[tuple[int, str, float, int, int]]:
    command = [
        sys.executable,
        "-m",
        "tests.fuzz.mutate",
        "--work",
        f"{first}:{last}",
        "--seed",
        str(seed),
        "--kind",
        kind,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            number, end, seconds, peak, size = json.loads(line)
            yield number, end, seconds, peak, size


def work(seed: int, kind: str, first: int, last: int) -> None:
    """Inside the worker: one JSON line for each input."""
    judge(b"HloModule warm\n\nENTRY e {\n  ROOT a = f32[] constant(1)\n}\n")
    proto_seeds() if kind != "text" else None
    limit_memory(MAX_BYTES)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in range(first, last):
        data = make_input(seed, number, kind)
        outcome = judge(data)
        print(
            json.dumps([number, outcome.end, outcome.seconds, outcome.peak, len(data)]), flush=True
        )


def limit_memory(more: int) -> None:
    """The process may map ``more`` bytes beyond what it has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _save(folder: Path, tally: Tally, seed: int, kind: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, end in tally.findings:
        data = make_input(seed, number, kind)
        name = hashlib.sha256(end.encode()).hexdigest()[:8]
        (folder / f"{name}_{seed}_{number}").write_bytes(data)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kind", choices=("text", "proto", "both"), default="both")
    parser.add_argument("--findings", type=Path, help="folder for the inputs that broke something")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work is not None:
        first, last = map(int, args.work.split(":"))
        work(args.seed, args.kind, first, last)
        return 0
    start = time.monotonic()
    tally = run(args.count, args.seed, args.kind, args.first)
    print(
        f"{args.count} inputs, seed {args.seed}: {time.monotonic() - start:.0f} s, {tally.seconds:.0f} s CPU in the readers"
    )
    print(tally.report())
    if args.findings is not None and tally.findings:
        _save(args.findings, tally, args.seed, args.kind)
    return 1 if tally.findings else 0


if __name__ == "__main__":
    sys.exit(main())
