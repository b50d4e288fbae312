"""What becomes of MPI jobs that something happens to: kill, stop, exceptions, ranks that differ, full /dev/shm.

    python benchmarks/fault_runs.py [--runs 5] [--kinds kill,stop,...] [--seed 0] [--json FILE] [--markdown FILE]

Each run starts a case of tests/cases with many steps on 2, 4 or 8 ranks, does the harm at a random time, and waits.
A row per kind says how many runs there were; how many did not end within the kind's limit, counted from the harm; how
many ended with another exit code than `spmd` promises; how many named the culprit in at most one message of ours (else
in the launcher's, before there was a program to speak of); how many left files in /dev/shm or the temporary directory,
or processes; and the longest time. Where it is permitted (root), runs have a /dev/shm of their own. Exits 1 if any is
amiss.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from launch.mpirun import MpiJob

ROOT = Path(__file__).resolve().parent.parent
CASES = {"mlp_dp2": 2, "gpt_dp2tp2": 4, "ring_attention4": 4, "mlp_fsdp8": 8}
MARK = "FAULT_RUN"
SHM = Path("/dev/shm")
SPMD = (sys.executable, "-m", "launch")
FAULTY = (sys.executable, str(ROOT / "benchmarks" / "fault_program.py"))
MANY = "1000000"

#: Seconds from the harm to the end of everything: a rank that dies ends the job within 10 s; --timeout 3 and ten.
END_LIMIT = 10.0
STOP_LIMIT = 13.0
#: A run that ends by itself; a machine in use takes its time to start eight ranks.
WHOLE_LIMIT = 120.0
#: After the job's end, for processes that are just going.
GRACE = 3.0


@dataclass
class Job:
    """A job under way: its launcher, and what it says."""

    command: list[str]
    environment: dict[str, str]
    mark: str = field(default_factory=lambda: uuid.uuid4().hex)

    def __post_init__(self) -> None:
        self.scratch = tempfile.TemporaryDirectory(prefix="fault-run-")
        own = {**self.environment, MARK: self.mark, "TMPDIR": self.scratch.name}
        self.said = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            self.command,
            cwd=ROOT,
            env={**os.environ, **own},
            stdout=self.said,
            stderr=self.said,
            start_new_session=True,
        )

    def text(self) -> str:
        self.said.seek(0)
        return self.said.read()

    def processes(self) -> dict[int, dict[str, str]]:
        """Environments of all processes that this job has started, by process number."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                environment = environment_of(entry)
                if environment.get(MARK) == self.mark:
                    found[int(entry.name)] = environment
        return found

    def rank(self, number: int, seconds: float = WHOLE_LIMIT) -> int | None:
        """The process of a rank, once there is one; None when the job has ended."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and self.process.poll() is None:
            for pid, environment in self.processes().items():
                if environment.get("OMPI_COMM_WORLD_RANK") == str(number) and is_rank(pid):
                    return pid
            time.sleep(0.02)
        return None

    def mpirun(self, seconds: float = 20) -> int | None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for pid in self.processes():
                words = command_line(pid)
                if Path(words[0]).name in ("mpirun", "prterun") and "-n" in words:
                    return pid
            time.sleep(0.01)
        return None

    def files(self) -> list[str]:
        return [str(path) for path in Path(self.scratch.name).iterdir()]

    def close(self) -> None:
        for pid in self.processes():
            strike(pid, signal.SIGKILL)
        self.process.wait()
        self.said.close()
        self.scratch.cleanup()


def environment_of(process: Path) -> dict[str, str]:
    try:
        data = (process / "environ").read_bytes().decode(errors="replace")
    except OSError:
        return {}
    entries = (entry.partition("=") for entry in data.split("\0") if entry)
    return {name: value for name, _, value in entries}


def command_line(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return [""]


def strike(pid: int | None, number: signal.Signals) -> None:
    """Send the signal, unless the process is gone."""
    if pid is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def is_rank(pid: int) -> bool:
    words = command_line(pid)
    return "launch.attendant" not in words and any("python" in word for word in words[:1])


@dataclass(frozen=True)
class Harm:
    """What was done to a job: when (monotonic), and what its messages have to say; ``codes``: of the command."""

    at: float
    culprit: str
    codes: frozenset[int]
    limit: float = END_LIMIT


@dataclass
class Row:
    kind: str
    ranks: str = ""
    runs: int = 0
    late: int = 0
    wrong_code: int = 0
    named: int = 0
    left_files: int = 0
    left_processes: int = 0
    longest_s: float = 0.0
    remarks: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return self.named == self.runs and not (
            self.late or self.wrong_code or self.left_files or self.left_processes
        )


def launched(case: str, *options: str, spmd: tuple[str, ...] = SPMD) -> list[str]:
    """The case under `spmd launch`, or another program of ours under the same mpirun line."""
    ranks = ("-n", str(CASES[case]), "--")
    run = ("run", str(ROOT / "tests" / "cases" / case / "module.hlo"), *options)
    if spmd is SPMD:
        return [*SPMD, "launch", *ranks, *run]
    return [sys.executable, "-m", "launch.mpirun", *ranks, *spmd[1:], *run]


def colon_line(commands: list[tuple[tuple[str, ...], dict[str, str]]]) -> list[str]:
    """One rank for each command and its own environment (mpirun's colon form)."""
    line = MpiJob(1, ()).arguments()[:1]
    for number, (command, own) in enumerate(commands):
        settings = ["env", *(f"{name}={value}" for name, value in own.items())] if own else []
        line += [*([":"] if number else []), "-n", "1", *settings, *command]
    return line


# ---- kinds: start a job, harm it
Kind = Callable[[random.Random, str], tuple[Job, Harm]]


def any_time(chance: random.Random, case: str) -> float:
    """Seconds after a process has begun: as it starts, or as it runs."""
    return chance.uniform(0, 2.5 + CASES[case])


def signalled(number: signal.Signals, harm: Callable[[int, int], Harm], *options: str) -> Kind:
    """Send a signal to a rank at a random time."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        job = Job(launched(case, "--steps", MANY, *options), {})
        rank = chance.randrange(CASES[case])
        pid = job.rank(rank)
        time.sleep(any_time(chance, case))
        strike(pid, number)
        return job, harm(rank, CASES[case])

    return start


def killed(rank: int, _: int) -> Harm:
    return Harm(time.monotonic(), rf"rank {rank}\b", frozenset({3}))


def stopped(rank: int, _: int) -> Harm:
    return Harm(time.monotonic(), rf"rank {rank} .*is stopped", frozenset({3}), STOP_LIMIT)


def interrupted(rank: int, _: int) -> Harm:
    return Harm(time.monotonic(), rf"rank {rank}\b|@1,{rank}\]", frozenset({3}))


def planted(defect: str, culprit: str, limit: float = END_LIMIT) -> Kind:
    """One thunk of one rank does not do what it should."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        rank, thunk, run = (
            chance.randrange(CASES[case]),
            chance.randrange(10000),
            chance.randint(1, 5),
        )
        faulty = (*FAULTY, str(rank), str(thunk), str(run), defect)
        options = ("--steps", MANY, "--timeout", "3")
        job = Job(launched(case, *options, spmd=faulty), {})
        return job, Harm(0.0, culprit.format(rank=rank), frozenset({3}), limit)

    return start


def differing(what: str) -> Kind:
    """One rank has another module, option or environment."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        ranks, odd = CASES[case], chance.randrange(CASES[case])
        if ranks == 2:
            odd = 1  # of two that differ, the second is called odd
        module = ROOT / "tests" / "cases" / case / "module.hlo"
        usual: tuple[tuple[str, ...], dict[str, str]] = ((*SPMD, "run", str(module)), {})
        other = usual
        scratch = Path(tempfile.mkdtemp(prefix="fault-module-"))
        if what == "module":
            (scratch / "module.hlo").write_text(module.read_text() + "\n// another one\n")
            other = ((*SPMD, "run", str(scratch / "module.hlo")), {})
        if what == "option":
            option = chance.choice([("--steps", "7"), ("--seed", "3"), ("--outputs", os.devnull)])
            other = ((*SPMD, "run", str(module), *option), {})
        if what == "environment":
            setting = chance.choice([("OPENBLAS_NUM_THREADS", "2"), ("SPMD_ANYTHING", "1")])
            other = (usual[0], dict([setting]))
        commands = [other if rank == odd else usual for rank in range(ranks)]
        job = Job(colon_line(commands), MpiJob(ranks, ()).environment(os.environ))
        return job, Harm(0.0, rf"do not have the same .*rank {odd}:", frozenset({2}))

    return start


def launcher_killed(chance: random.Random, case: str) -> tuple[Job, Harm]:
    job = Job(launched(case, "--steps", MANY), {})
    pid = job.mpirun()
    time.sleep(any_time(chance, case))
    strike(pid, signal.SIGKILL)
    return job, Harm(time.monotonic(), r"launcher \(mpirun\) was ended by SIGKILL", frozenset({3}))


def command_signalled(number: signal.Signals, codes: frozenset[int]) -> Kind:
    """`spmd launch` itself gets a signal; nobody is left to say anything, and nothing need be said."""

    def start(chance: random.Random, case: str) -> tuple[Job, Harm]:
        job = Job(launched(case, "--steps", MANY), {})
        job.mpirun()
        time.sleep(any_time(chance, case))
        os.kill(job.process.pid, number)
        return job, Harm(time.monotonic(), "", codes)

    return start


def no_room(chance: random.Random, case: str) -> tuple[Job, Harm]:
    """/dev/shm is full: the job runs all the same."""
    filler = SHM / f"filler-{uuid.uuid4().hex}"
    status = os.statvfs(SHM)
    with filler.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(status.f_bavail - 16, 1) * status.f_frsize)
    job = Job(launched(case, "--steps", "3"), {})
    job.process.wait()
    filler.unlink()
    return job, Harm(0.0, r"has no room", frozenset({0}), WHOLE_LIMIT)


def two_jobs(chance: random.Random, case: str) -> tuple[Job, Harm]:
    """A rank of another job beside this one is killed: this one goes on and is right."""
    folder = ROOT / "tests" / "cases" / case
    arrays = ("--inputs", str(folder / "inputs.npz"), "--expect", str(folder / "expected.npz"))
    beside, _ = signalled(signal.SIGKILL, killed)(chance, case)
    job = Job(launched(case, *arrays), {})
    job.process.wait()
    beside.process.wait()
    remaining = wait_for_none(beside, GRACE)
    beside.close()
    culprit = r"outputs agree" if not remaining else "the other job has left processes"
    return job, Harm(0.0, culprit, frozenset({0}), WHOLE_LIMIT)


KINDS: dict[str, Kind] = {
    "kill": signalled(signal.SIGKILL, killed),
    "stop": signalled(signal.SIGSTOP, stopped, "--timeout", "3"),
    "interrupt": signalled(signal.SIGINT, interrupted),
    "exception": planted("raise", r"rank {rank}/\d+\] .*Traceback(.|\n)*PlantedError: planted"),
    "exit": planted("exit", r"rank {rank}\b"),
    "hang": planted("hang", r"rank {rank} ", STOP_LIMIT),
    "module": differing("module"),
    "option": differing("option"),
    "environment": differing("environment"),
    "mpirun": launcher_killed,
    "ctrl-c": command_signalled(signal.SIGINT, frozenset({130})),
    "launch": command_signalled(signal.SIGKILL, frozenset({-signal.SIGKILL})),
    "full": no_room,
    "two": two_jobs,
}


# ---- what became of it
def observe(row: Row, job: Job, harm: Harm, begun: float, before: set[str]) -> None:
    """Wait for the end, and take down in ``row`` what was amiss."""
    begin = harm.at or begun
    limit = harm.limit if harm.at else WHOLE_LIMIT
    try:
        code = job.process.wait(max(0.1, begin + limit + 30 - time.monotonic()))
    except subprocess.TimeoutExpired:
        code = None
    if harm.at:  # a dead launcher's ranks count too
        wait_for_none(job, max(0.0, begin + limit - time.monotonic()), attendants=False)
    seconds = time.monotonic() - begin
    text = job.text()
    problems = []
    if code is None or seconds > limit:
        row.late += 1
        problems.append(f"{seconds:.1f} s")
    if code not in harm.codes:
        row.wrong_code += 1
        problems.append(f"exit code {code}")
    messages = text.count("spmd: error:")
    if re.search(harm.culprit, text) and messages <= 1 and text.count("Traceback") <= 1:
        row.named += 1
    else:
        problems.append(f"{messages} messages, culprit /{harm.culprit}/")
    processes = wait_for_none(job, GRACE)
    if processes:
        row.left_processes += 1
        problems.append(f"processes {[command_line(pid)[:6] for pid in processes]}")
    files = job.files() + sorted({path.name for path in SHM.iterdir()} - before)
    if files:
        row.left_files += 1
        problems.append(f"files {files}")
    if harm.at:
        row.longest_s = max(row.longest_s, seconds)
    row.runs += 1
    if problems:
        row.remarks.append(f"{'; '.join(problems)}: {text[:600]}")
    job.close()


def wait_for_none(job: Job, seconds: float, *, attendants: bool = True) -> list[int]:
    """The job's processes after at most so long."""
    deadline = time.monotonic() + seconds
    while True:
        left = [pid for pid in job.processes() if attendants or is_rank(pid)]
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.05)


def own_shared_memory() -> bool:
    """A /dev/shm that no other job uses, for this process and what it starts."""
    library = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, recursive = 0x20000, 1 << 18, 1 << 14
    if library.unshare(new_namespace) != 0:
        return False
    library.mount(b"none", b"/", None, private | recursive, None)
    return bool(library.mount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size=512m") == 0)


def table(rows: list[Row]) -> str:
    lines = [
        "| fault | ranks | runs | late | wrong code | named once | files | processes | longest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        longest = f"{row.longest_s:.1f} s" if row.longest_s else "-"
        cells = (row.kind, row.ranks, row.runs, row.late, row.wrong_code, row.named)
        line = (*cells, row.left_files, row.left_processes, longest)
        lines.append("| " + " | ".join(map(str, line)) + " |")
    return "\n".join(lines)


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
            begun = time.monotonic()
            job, harm = KINDS[kind](chance, cases[run % len(cases)])
            observe(row, job, harm, begun, before)
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
