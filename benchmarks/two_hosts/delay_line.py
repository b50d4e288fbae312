"""A link where the kernel has no netem: two tun devices, and for each direction a process that carries packets."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from benchmarks.two_hosts.commands import NotPermittedError, command
from benchmarks.two_hosts.namespaces import Host

SOURCE = Path(__file__).with_name("delay_line.c")

# Constants of linux/if_tun.h.
_SET_DEVICE, _SET_OFFLOADS = 0x400454CA, 0x400454D0
_TUN, _NO_PROTOCOL, _HEADERS = 0x0001, 0x1000, 0x4000
#: Packets come whole, to be cut into frames and summed up by whoever wants to: as between veth devices.
_OFFLOADS = 0x01 | 0x02 | 0x04


@contextmanager
def delay_line(ends: tuple[Host, Host], device: str, rate: float, delay: float) -> Iterator[None]:
    """A tun device named ``device`` on each of the two hosts, and a cable between them: bits per second each way, and
    seconds that a packet is under way.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="spmd-delay-line-"))
        program = _compiled(Path(folder))
        with ExitStack() as opened:
            files: list[int] = []
            for host in ends:
                files.append(_tun_device(host, device))
                opened.callback(os.close, files[-1])
            numbers = (str(round(1e9 * delay)), str(round(rate)))
            for n in range(2):
                there = (files[n], files[1 - n])
                words = (str(program), *numbers, *map(str, there))
                line = subprocess.Popen(words, pass_fds=there)
                stack.callback(_end, line)
                _place(line.pid, n)
        yield


def _place(line: int, direction: int) -> None:
    """Ahead of ranks that compute on all cores, since a cable does not wait for them; and on the cores that ranks take
    last, each direction on its own: two ranks that have no core to spare pay the same for it.
    """
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(line, (cores[-1 - direction % len(cores)],))
    with suppress(PermissionError):
        os.sched_setscheduler(line, os.SCHED_FIFO, os.sched_param(1))


def _end(line: subprocess.Popen[bytes]) -> None:
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
