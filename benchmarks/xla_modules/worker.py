"""A process that answers one line of JSON for each line it gets, and is started again when it ends itself or hangs.

Compilers may abort on a module; what they abort on costs that module alone.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any


class Worker:
    """Runs `command` and passes it requests. ``seconds`` is the limit of one request."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as this

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return the answer, or {"error": reason} if the process ended itself or took too long."""
        process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            if not selector.select(self._seconds):
                self.close()
                return {"error": f"not done after {self._seconds:g} s"}
        line = process.stdout.readline()
        if not line:
            code = process.wait()
            self._process = None
            return {"error": f"the process ended itself ({code}): {self._last_words()}"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _last_words(self) -> str:
        """Return the first line that the process wrote as its error; the file begins with zeros after a restart."""
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").replace("\0", "").split("\n")
        return next((line for line in lines if line.strip()), "")[:200]

    def _started(self) -> subprocess.Popen[str]:
        self._said.truncate(0)
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
        )
        return self._process


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer each request of standard input; an exception becomes {"error": its first line}."""
    for line in sys.stdin:
        try:
            found = answer(json.loads(line))
        except Exception as error:  # noqa: BLE001 - reported as the answer
            text = (str(error).splitlines() or [""])[0]
            found = {"error": f"{type(error).__name__}: {text}"[:300]}
        print(json.dumps(found), flush=True)
