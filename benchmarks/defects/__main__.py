"""Run every command of a list of defects and print which of them give what they should.

    python -m benchmarks.defects FOLDER [--only REGEX] [--list FILE] [--json FILE]

FOLDER holds the modules, inputs and scripts that the commands name as `$F`. The list is commands.toml beside this file:
for each command its exit code, the seconds it may take, and regular expressions that its output (standard output and
standard error together) must or must not contain. A command runs in bash from the project's root; `$T` is an empty
folder of its own. Exits with 1 if a command does not give what it should.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHOWN = 100  # characters of the reason or of the output's last line in the table


@dataclass(frozen=True)
class Expectation:
    """A command of the list and what it must give.

    ``seconds`` is its time limit, ``exit`` its exit code, ``prints`` and ``omits`` are regular expressions that its
    output must and must not contain.
    """

    id: str
    command: str
    seconds: float
    exit: int
    prints: tuple[str, ...]
    omits: tuple[str, ...]


@dataclass(frozen=True)
class Row:
    """The result of one command: ``wrong`` is empty if it gave what it should."""

    id: str
    command: str
    seconds: float
    exit: int | None
    wrong: str
    last_line: str


def read_list(path: Path) -> list[Expectation]:
    """Return the expectations of the TOML file at `path`, in the file's order."""
    entries = tomllib.loads(path.read_text())["command"]
    return [
        Expectation(
            entry["id"],
            entry["run"],
            entry.get("seconds", 60),
            entry.get("exit", 0),
            tuple(entry.get("prints", ())),
            (*entry.get("omits", ()), "Traceback"),
        )
        for entry in entries
    ]


def run_command(expected: Expectation, folder: Path) -> Row:
    """Run one command in bash and compare its exit code and output with `expected`."""
    own = Path(tempfile.mkdtemp())
    environment = {
        # Open MPI's own mpirun, which some commands call, refuses to run as root without these.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "F": str(folder.resolve()),
        "T": str(own),
    }
    begin = time.monotonic()
    # A session of its own, so that ranks that the command started end with it.
    process = subprocess.Popen(
        ["bash", "-c", expected.command],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=expected.seconds)[0]
        code: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, code = process.communicate()[0], None
    seconds = time.monotonic() - begin
    shutil.rmtree(own, ignore_errors=True)
    lines = output.strip().splitlines() or [""]
    wrong = what_is_wrong(expected, code, output)
    return Row(expected.id, expected.command, seconds, code, wrong, lines[-1])


def what_is_wrong(expected: Expectation, code: int | None, output: str) -> str:
    """Return the first difference between a command's result and `expected`; empty if there is none."""
    if code is None:
        return f"not done after {expected.seconds:g} s"
    if code != expected.exit:
        return f"exit code {code}, expected {expected.exit}"
    for pattern in expected.prints:
        if not re.search(pattern, output):
            return f"does not print {pattern!r}"
    for pattern in expected.omits:
        if re.search(pattern, output):
            return f"prints {pattern!r}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "folder", type=Path, help="modules and scripts that the commands name as $F"
    )
    parser.add_argument("--only", default="", help="regular expression on the ids of commands")
    parser.add_argument("--list", type=Path, default=Path(__file__).with_name("commands.toml"))
    parser.add_argument("--json", type=Path, help="also write the rows to this file")
    options = parser.parse_args()
    if not options.folder.is_dir():
        parser.error(f"{options.folder} is not a folder")
    rows = []
    for expected in read_list(options.list):
        if not re.search(options.only, expected.id):
            continue
        row = run_command(expected, options.folder)
        rows.append(row)
        verdict = f"WRONG: {row.wrong}" if row.wrong else "right"
        print(f"{row.id:5} {row.seconds:6.1f} s  {verdict[:SHOWN]}", flush=True)
        print(f"      {row.last_line[:SHOWN]}", flush=True)
    right = sum(not row.wrong for row in rows)
    print(f"{right} of {len(rows)} commands give what they should")
    if options.json:
        options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    return 0 if right == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
