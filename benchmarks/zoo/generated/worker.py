"""A process that answers lines with lines, and is started again when it dies, does not answer, or has grown old."""

from __future__ import annotations

import queue
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field


class WorkerDiedError(Exception):
    """The process ended, or was ended since no answer came; the message says which, and what it wrote last."""


@dataclass
class Worker:
    """`command` reads a line and writes a line, again and again.

    patience: seconds until an answer; most: answers that a process gives before a fresh one takes its place, since
    compiled programs stay in a process's memory.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str]
    patience: float
    most: int
    _process: subprocess.Popen[str] | None = None
    _said: queue.Queue[str] = field(default_factory=queue.Queue)
    _given: int = 0
    _listener: threading.Thread | None = None

    def ask(self, line: str) -> str:
        """Return the answer. Raise WorkerDiedError; the next call starts another process."""
        if self._process is None or self._given >= self.most:
            self.close()
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._given += 1
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
            answer = self._said.get(timeout=self.patience)
        except queue.Empty:
            raise WorkerDiedError(f"no answer within {self.patience:g} s{self._end()}") from None
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise WorkerDiedError(f"the process ended{self._end()}")
        return answer.strip()

    def close(self) -> None:
        """End the process, which ends by itself when its input does."""
        if self._process is not None:
            self._end()

    def _start(self) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed when the process has ended
        self._process = subprocess.Popen(
            self.command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env=self.environment,
        )
        self._said, self._given = queue.Queue(), 0
        self._listener = threading.Thread(target=_listen, args=(self._process, self._said))
        self._listener.start()

    def _end(self) -> str:
        """Return the exit code of the process and the last line of its standard error, as text."""
        process, self._process = self._process, None
        assert process is not None
        assert process.stdin is not None
        try:
            process.stdin.close()
            code = process.wait(timeout=2)
        except (OSError, subprocess.TimeoutExpired):
            process.kill()
            code = process.wait()
        assert self._listener is not None
        self._listener.join()
        self._errors.seek(0)
        lines = self._errors.read().strip().splitlines()
        self._errors.close()
        return f" (exit code {code}): {lines[-1][:200] if lines else 'nothing said'}"


def _listen(process: subprocess.Popen[str], said: queue.Queue[str]) -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            said.put(line)
    said.put("")
