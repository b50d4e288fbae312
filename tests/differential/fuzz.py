"""Random programs through the equivalence checker.

    python -m tests.differential.fuzz --count 5000 --seed 0        exit code 1 where a program fails
    python -m tests.differential.fuzz --seed 121 --count 1 --out failures
    python -m tests.differential.fuzz --execute                     through all stages, on loopback devices
    python -m tests.differential.fuzz --focus each                  every operation of the table in turn

Each failing seed is shrunk and written to OUT/seed_N.hlo, which --replay runs again (and so does test_regressions.py
for the files in tests/differential/regressions).
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import spmd
from spmd.errors import SpmdError
from spmd.hlo import HloModule
from tests.differential.equivalence import (
    Array,
    NotEquivalentError,
    check_equivalence,
    check_execution,
)
from tests.differential.generator.table import OPERATIONS
from tests.differential.generator.writer import inputs_of
from tests.differential.minimize import minimize
from tests.differential.tiling import TilingError
from tests.strategies import Program, generate

#: Checks a module on a number of devices and inputs; raises where something is wrong.
Check = Callable[[HloModule, int, Sequence[Array]], object]

_HEADER = re.compile(r"^// seed (\d+), (\d+) devices", re.MULTILINE)


def failure(
    module: HloModule,
    num_devices: int,
    seed: int,
    check: Check = check_equivalence,
) -> str | None:
    """What is wrong, as ``kind: message``; None where the program passes."""
    try:
        check(module, num_devices, inputs_of(module, seed))
    except (NotEquivalentError, TilingError) as error:
        return f"{type(error).__name__}: {error}"
    except SpmdError as error:
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001 - a crash anywhere is a finding too
        return f"crash {type(error).__name__}: {error}"
    return None


def shrink(program: Program, found: str, check: Check = check_equivalence) -> HloModule:
    """The smallest module found that fails in the same way."""
    kind = found.partition(":")[0]

    def fails(module: HloModule) -> bool:
        try:
            spmd.verify(module)
            spmd.evaluate(module, *inputs_of(module, program.seed))
        except Exception:  # noqa: BLE001 - an edit that breaks the module is no failure of the partitioner
            return False
        again = failure(module, program.num_devices, program.seed, check)
        return again is not None and again.partition(":")[0] == kind

    return minimize(program.module, fails)


def write_fixture(folder: Path, program: Program, module: HloModule, found: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"seed_{program.seed}.hlo"
    lines = [f"// seed {program.seed}, {program.num_devices} devices"]
    lines += [f"// {line}" for line in found.splitlines()[:4]]
    path.write_text("\n".join(lines) + "\n" + str(module).rstrip() + "\n", encoding="utf-8")
    return path


def replay(path: Path) -> str | None:
    """Run a written fixture again; what is wrong, or None."""
    text = path.read_text(encoding="utf-8")
    header = _HEADER.search(text)
    if header is None:
        raise ValueError(f"{path}: the line `// seed N, M devices` is missing")
    return failure(spmd.parse(text), int(header[2]), int(header[1]))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.fuzz")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0, help="first seed")
    parser.add_argument("--out", type=Path, default=Path("fuzz-failures"))
    parser.add_argument("--stop-after", type=int, default=10, help="failures to shrink")
    parser.add_argument("--execute", action="store_true", help="compile and run the thunks")
    parser.add_argument("--focus", default="", help="an operation to write often, or `each`")
    parser.add_argument("--replay", type=Path)
    options = parser.parse_args(arguments)
    if options.replay is not None:
        found = replay(options.replay)
        print(found or "passes")
        return 1 if found else 0
    return _run(options)


def _run(options: argparse.Namespace) -> int:
    start = time.perf_counter()
    check: Check = check_execution if options.execute else check_equivalence
    failed: list[int] = []
    for done, seed in enumerate(range(options.seed, options.seed + options.count), start=1):
        program = generate(seed, _focus(options.focus, seed))
        found = failure(program.module, program.num_devices, seed, check)
        if found is not None:
            failed.append(seed)
            print(f"seed {seed} fails: {found}", flush=True)
            if len(failed) <= options.stop_after:
                path = write_fixture(options.out, program, shrink(program, found, check), found)
                print(f"  shrunk to {path}", flush=True)
        if done % 250 == 0 or done == options.count:
            seconds = time.perf_counter() - start
            print(f"{done} programs, {len(failed)} failed, {seconds:.0f} s", flush=True)
    if failed:
        print(f"failing seeds: {failed}")
    return 1 if failed else 0


def _focus(wanted: str, seed: int) -> str:
    return OPERATIONS[seed % len(OPERATIONS)].name if wanted == "each" else wanted


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
