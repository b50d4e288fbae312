"""Commands of the system that set hosts and their link up, and what is said where they may not or cannot."""

from __future__ import annotations

import shutil
import subprocess

from spmd.errors import SpmdError


class NotPermittedError(SpmdError):
    """There can be no two hosts here: a permission, a command or a part of the kernel is missing."""


def command(*words: str) -> str:
    """Return what a command printed.

    Raises:
        NotPermittedError: The command failed; the message has what it said.
    """
    done = attempt(*words)
    if done.returncode:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise NotPermittedError(f"{' '.join(words)}: {said}")
    return done.stdout


def attempt(*words: str) -> subprocess.CompletedProcess[str]:
    """The command's end, whatever it is. NotPermittedError where there is no such command."""
    if shutil.which(words[0]) is None:
        raise NotPermittedError(f"no {words[0]} here (iproute2)")
    return subprocess.run(words, capture_output=True, text=True, check=False)
