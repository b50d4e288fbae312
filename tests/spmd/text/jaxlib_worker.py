"""XLA's text reader in a process of its own: it ends the process on some texts, and that must not end ours."""

from __future__ import annotations

import json
import math
import re
import select
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

#: Seconds after which a text counts as one that XLA's reader does not come back from.
TIME_LIMIT = 20.0
_CONSTANT = re.compile(r"\[(\d+(?:,\d+)*)\]\S* constant\(")


@dataclass(frozen=True)
class Answer:
    """``error``: why XLA refuses the text, "" if it takes it. ``text``: the module as XLA prints it.

    ``invents_values``: constants hold what the text does not say. ``died``: the reader ended its process.
    """

    error: str = ""
    text: str = ""
    invents_values: bool = False
    died: bool = False


class JaxlibReader:
    """Asks a worker, and starts another one where a text ended it. Use as a context manager."""

    def __init__(self) -> None:
        self._worker: subprocess.Popen[str] | None = None

    def __enter__(self) -> JaxlibReader:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop()

    def read(self, text: str) -> Answer:
        """Return what XLA's reader makes of the text."""
        worker = self._worker = self._worker or _start()
        assert worker.stdin is not None
        assert worker.stdout is not None
        worker.stdin.write(json.dumps(text) + "\n")
        worker.stdin.flush()
        ready = select.select([worker.stdout], [], [], TIME_LIMIT)[0]
        line = worker.stdout.readline() if ready else ""
        if not line:
            self._stop()
            return Answer("the process ended" if ready else "no answer", died=True)
        return Answer(**json.loads(line))

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker.communicate()
            self._worker = None


def _start() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spmd.text.jaxlib_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _invents_values(text: str) -> bool:
    """Return whether XLA gives constants values that the text does not spell out.

    These are those of an elided constant (others at each reading), and the zeros behind a number without braces.
    """
    sizes = (math.prod(map(int, found[1].split(","))) for found in _CONSTANT.finditer(text))
    return "..." in text or max(sizes, default=0) > len(text)


def _without_names(printed: str) -> str:
    """Computations by number: how XLA makes names unique depends on which of two it meets first."""
    heads = re.findall(r"^(?:ENTRY )?%([\w.\-]+) \{", printed, re.MULTILINE)
    numbers = {name: f"%c{i}" for i, name in enumerate(heads)}
    return re.sub(r"%([\w.\-]+)", lambda found: numbers.get(found[1], found[0]), printed)


def _serve() -> None:
    from jaxlib import _hlo

    options = _hlo.HloPrintOptions()
    options.canonicalize_instruction_names = True
    options.canonicalize_computations = True
    for line in sys.stdin:
        text = json.loads(line)
        invents = _invents_values(text)
        options.print_large_constants = not invents
        options.print_program_shape = False
        answer: dict[str, Any]
        try:
            printed = _hlo.hlo_module_from_text(text).to_string(options)
            answer = {"text": _without_names(printed), "invents_values": invents}
        except (RuntimeError, ValueError) as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    _serve()
