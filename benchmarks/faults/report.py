"""Report what became of jobs: a row for each kind of harm."""

from __future__ import annotations

import re
import subprocess
import time
from dataclasses import dataclass, field

from benchmarks.faults.harm import GRACE, Harm
from benchmarks.faults.job import SHM, WHOLE_LIMIT, Job, command_line, wait_for_none


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


def observe(row: Row, job: Job, harm: Harm, before: set[str]) -> None:
    """Wait for the end, and take down in ``row`` what was amiss."""
    begin = harm.at or job.begun
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
