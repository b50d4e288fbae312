"""Do harm to MPI jobs and report what becomes of them: kill, stop, exceptions, ranks that differ, a busy machine.

    python -m benchmarks.faults.runs [--runs 5] [--kinds kill,stop,...] [--seed 0] [--json FILE] [--markdown FILE]

Each run starts a case of tests/cases with many steps on 2, 4 or 8 ranks, does the harm at a random time, and waits.
A row per kind says how many runs there were; how many did not end within the kind's limit, counted from the harm (from
the job's start where it has no moment); how many ended with another exit code than `spmd` promises; how many named the
culprit in at most one message of ours (else in the launcher's, before there was a program to speak of); how many left
files in /dev/shm or the temporary directory, or processes; and the longest time. Where it is permitted (root), runs
have a /dev/shm of their own. Exits 1 if any is amiss.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import random
import sys
from dataclasses import asdict
from pathlib import Path

from benchmarks.faults.harm import KINDS
from benchmarks.faults.job import CASES, SHM
from benchmarks.faults.report import Row, observe, table


def own_shared_memory() -> bool:
    """A /dev/shm that no other job uses, for this process and what it starts."""
    library = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, recursive = 0x20000, 1 << 18, 1 << 14
    if library.unshare(new_namespace) != 0:
        return False
    library.mount(b"none", b"/", None, private | recursive, None)
    return bool(library.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=512m") == 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--runs", type=int, default=5, help="of each kind (default: 5)")
    parser.add_argument("--kinds", default=",".join(KINDS), help=f"of {','.join(KINDS)}")
    parser.add_argument("--cases", default=",".join(CASES), help=f"of {','.join(CASES)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    private = own_shared_memory()
    chance = random.Random(options.seed)
    cases = options.cases.split(",")
    rows = []
    for kind in options.kinds.split(","):
        if kind == "full" and not private:
            print("full: not run, /dev/shm is everybody's here", flush=True)
            continue
        row = Row(kind, ", ".join(str(n) for n in sorted({CASES[case] for case in cases})))
        rows.append(row)
        for run in range(options.runs):
            before = {path.name for path in SHM.iterdir()}
            job, harm = KINDS[kind](chance, cases[run % len(cases)])
            observe(row, job, harm, before)
        for remark in row.remarks:
            print(f"{kind}: {remark}", flush=True)
        print(table([row]).splitlines()[-1], flush=True)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    if options.markdown:
        options.markdown.write_text(table(rows) + "\n")
    return 0 if all(row.ok for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
