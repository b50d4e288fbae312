"""A link's delay where the kernel has no netem: two tun devices, and a process that carries packets between them."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.two_hosts.commands import NotPermittedError, command
from benchmarks.two_hosts.namespaces import Host

SOURCE = Path(__file__).with_name("delay_line.c")

# Of linux/if_tun.h.
_SET_DEVICE, _SET_OFFLOADS = 0x400454CA, 0x400454D0
_TUN, _NO_PROTOCOL, _HEADERS = 0x0001, 0x1000, 0x4000
#: Packets come whole, to be cut into frames and summed up by whoever wants to: as between veth devices.
_OFFLOADS = 0x01 | 0x02 | 0x04


@contextmanager
def delay_line(ends: tuple[Host, Host], device: str, seconds: float) -> Iterator[None]:
    """A tun device named ``device`` on each of the two hosts; what one sends the other gets ``seconds`` later."""
    with tempfile.TemporaryDirectory(prefix="spmd-delay-line-") as folder:
        program = _compiled(Path(folder))
        files: list[int] = []
        try:
            for host in ends:
                files.append(_tun_device(host, device))
            numbers = map(str, (round(1e9 * seconds), *files))
            line = subprocess.Popen((str(program), *numbers), pass_fds=files)
        finally:
            for file in files:
                os.close(file)
        try:
            with suppress(PermissionError):
                # Ahead of ranks that compute on all cores: a cable does not wait for them.
                os.sched_setscheduler(line.pid, os.SCHED_FIFO, os.sched_param(1))
            yield
        finally:
            line.kill()
            line.wait()


def _compiled(folder: Path) -> Path:
    compiler = shutil.which("cc")
    if compiler is None:
        raise NotPermittedError(
            "a delay needs a kernel with netem, or a C compiler (cc) for a delay line"
        )
    program = folder / "delay_line"
    command(compiler, "-O2", "-o", str(program), str(SOURCE))
    return program


def _tun_device(host: Host, device: str) -> int:
    """Its open file, which keeps the device. It is made here, under a name of this process, and moved."""
    made = f"spmd{os.getpid()}"
    try:
        file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotPermittedError(f"/dev/net/tun: {error.strerror}") from error
    try:
        fcntl.ioctl(
            file, _SET_DEVICE, struct.pack("16sH22x", made.encode(), _TUN | _NO_PROTOCOL | _HEADERS)
        )
        fcntl.ioctl(file, _SET_OFFLOADS, _OFFLOADS)
        command("ip", "link", "set", made, "netns", host.namespace, "name", device)
    except OSError as error:
        os.close(file)
        raise NotPermittedError(f"no tun device can be made: {error.strerror}") from error
    except NotPermittedError:
        os.close(file)
        raise
    return file
