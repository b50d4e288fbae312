"""Description of this machine that `spmd calibrate` wrote: its file, and its use by compilations.

Machines may share a user's folder, and a user's folder may move to another machine: the file's name tells for which
processor and how many of them it is, so that a description of another one is not found.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from pathlib import Path

from spmd.machine.description import MachineDescription
from spmd.machine.named import machine_named, with_own_name
from spmd.machine.reader import MAX_BYTES, MachineError, read_machine
from spmd.output_file import write_file

_FOLDER = "spmd-executor"
#: Lines of /proc/cpuinfo that distinguish processors; other lines describe the current state, such as the clock rate.
_TELLING = frozenset(
    {"vendor_id", "cpu family", "model", "model name", "stepping", "cache size", "flags"}
)


def calibration_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file in the user's configuration folder: XDG_CONFIG_HOME, else ~/.config."""
    value = environment.get("XDG_CONFIG_HOME", "")
    folder = Path(value) if Path(value).is_absolute() else Path.home() / ".config"
    return folder / _FOLDER / f"machine-{processor_digest()}.json"


@functools.cache
def processor_digest() -> str:
    """Return 8 hexadecimal digits of a digest of /proc/cpuinfo's first processor and the number of processors."""
    try:
        first = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        first = platform.processor() or platform.machine()
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() in _TELLING]
    text = "\n".join([*(lines or [first]), str(os.cpu_count())])
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def keep_calibration(text: str) -> None:
    """Replace the description atomically: concurrent readers find the old one or the new one."""
    write_file(calibration_path(), text)


def machine_here() -> MachineDescription:
    """Return the calibrated description, or the shipped default if there is none.

    Raises MachineError if there is one that cannot be read.
    """
    path = calibration_path()
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return machine_named()
    except OSError as error:
        raise MachineError(f"{path}: {error.strerror or error}") from error
    return with_own_name(read_machine(data, str(path)))
