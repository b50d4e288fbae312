"""Start-up of the command: processor time, and modules that a run of a saved executable imports.

    python -m benchmarks.startup [--case FOLDER] [--rounds 15] [--json FILE]

Every command runs in a process of its own. Processor time is that of all of its threads, the interpreter's start
included, with the bytecode of an earlier run; shown is the median. Modules are counted at the end of the process, those
of Python, NumPy and llvmlite included, after a run that left machine code and the program in the caches; `--trust` runs
without any cache a file that was compiled `--with-code`. Exit code 1: `spmd --help` takes more than 0.15 s, or a run of
the saved executable imports more than 350 modules.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launch.cache.cache_folder import VARIABLE
from launch.report.environment import describe_environment

CASE = Path(__file__).parent.parent / "tests" / "cases" / "mlp_dp2"
MOST_SECONDS, MOST_MODULES = 0.15, 350
PACKAGES = ("spmd", "partitioner", "collectives", "runtime", "launch")

#: Runs a command of `spmd`, then prints the names of all imported modules as the last line of standard output.
_COUNTING = """
import json, sys
from launch.__main__ import main
code = main()
print(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


@dataclass(frozen=True)
class Imported:
    """Modules that a process had imported when it ended. ``own``: those of this project's packages."""

    total: int
    own: int
    by_package: dict[str, int]

    @staticmethod
    def of(names: Sequence[str]) -> Imported:
        packages = [name.partition(".")[0] for name in names]
        by_package = {package: packages.count(package) for package in PACKAGES}
        return Imported(len(names), sum(by_package.values()), by_package)


def imported_by(arguments: Sequence[str], environment: Mapping[str, str]) -> Imported:
    """Return what `spmd` imports with these arguments, once all that it keeps in caches is there."""
    for _ in range(2):
        done = subprocess.run(
            (sys.executable, "-c", _COUNTING, *arguments),
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
    return Imported.of(json.loads(done.stdout.splitlines()[-1]))


def processor_seconds(command: Sequence[str], environment: Mapping[str, str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure(case: Path, rounds: int) -> dict[str, Any]:
    spmd = (sys.executable, "-m", "launch")
    module = str(case / "module.hlo")
    with tempfile.TemporaryDirectory() as folder:
        saved = str(Path(folder) / "saved.spmdx")
        environment = {**os.environ, VARIABLE: str(Path(folder) / "objects")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        bare = {**environment, VARIABLE: "off"}
        coded = str(Path(folder) / "coded.spmdx")
        processor_seconds((*spmd, "compile", module, "-o", saved), environment)
        processor_seconds((*spmd, "compile", "--with-code", module, "-o", coded), environment)
        imported = {
            "spmd --help": imported_by(("--help",), environment),
            "spmd run saved.spmdx": imported_by(("run", saved), environment),
            "spmd run --trust saved.spmdx": imported_by(("run", "--trust", coded), bare),
            "spmd run module.hlo": imported_by(("run", module), environment),
        }
        commands = {
            "spmd --help": ("--help",),
            "spmd run saved.spmdx": ("run", saved),
            "spmd run --trust saved.spmdx": ("run", "--trust", coded),
            "spmd run module.hlo": ("run", module),
        }
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(rounds):
            for name, arguments in commands.items():
                own = bare if "--trust" in arguments else environment
                seconds[name].append(processor_seconds((*spmd, *arguments), own))
    return {
        "cpu_s": {name: statistics.median(found) for name, found in seconds.items()},
        "cpu_s_range": {name: (min(found), max(found)) for name, found in seconds.items()},
        "modules": {name: vars(found) for name, found in imported.items()},
    }


def report(found: dict[str, Any], rounds: int) -> bool:
    """Print the figures, and return whether all bars are met."""
    seconds, (least, most) = found["cpu_s"]["spmd --help"], found["cpu_s_range"]["spmd --help"]
    modules = found["modules"]["spmd run saved.spmdx"]["total"]
    bars = {
        f"spmd --help: {seconds:.3f} s of processor time, median of {rounds} ({least:.3f} to {most:.3f}); "
        f"at most {MOST_SECONDS} s": seconds <= MOST_SECONDS,
        f"spmd run saved.spmdx: {modules} modules; at most {MOST_MODULES}": modules <= MOST_MODULES,
    }
    print(f"{'imported modules':28s} {'total':>6s} {'own':>6s} {'CPU s':>7s}  own by package")
    for name, one in found["modules"].items():
        packages = ", ".join(f"{package} {n}" for package, n in one["by_package"].items() if n)
        spent = found["cpu_s"][name]
        print(f"{name:28s} {one['total']:6d} {one['own']:6d} {spent:7.3f}  {packages}")
    for text, is_met in bars.items():
        print(f"{'met' if is_met else 'MISSED':8s}{text}")
    return all(bars.values())


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--case", type=Path, default=CASE, help="folder of the module to run (default: mlp_dp2)"
    )
    parser.add_argument("--rounds", type=int, default=15, help="runs that are timed (default: 15)")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args()
    environment = describe_environment()
    print(json.dumps(environment))
    found = measure(options.case, options.rounds)
    is_met = report(found, options.rounds)
    if options.json:
        options.json.write_text(json.dumps({"environment": environment, **found}, indent=1) + "\n")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
