"""A process that answers one line of JSON for each line it gets, and is started again when it ends itself or hangs.

Compilers may abort on a module; what they abort on costs that module alone.
"""

from __future__ import annotations

import json
import selectors
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any


class Worker:
    """Runs `command` and passes it requests. ``seconds`` is the limit of one request."""

    def __init__(self, command: Sequence[str], seconds: float) -> None:
        self._command = command
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

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
            return {"error": f"the process ended itself ({code})"}
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _started(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
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
