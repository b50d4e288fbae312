"""Files written whole or not at all, and what stays as it was: old contents, modes, links, pipes."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from launch.data.inputs import write_arrays
from spmd.output_file import OutputFileError, replaced_file, write_file
from tests.paths import CASES

MODULE = CASES / "mlp_dp2" / "module.hlo"


def test_a_file_is_written_with_the_usual_mode(tmp_path: Path) -> None:
    write_file(tmp_path / "a", "é")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").read_bytes() == "é".encode()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_mode_and_links_stay(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old and long")
    (tmp_path / "a").chmod(0o640)
    (tmp_path / "link").symlink_to("a")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "a").read_text() == "new"
    assert (tmp_path / "a").stat().st_mode & 0o777 == 0o640


def write_half(path: Path, error: Exception) -> None:
    with replaced_file(path) as file:
        file.write(b"half")
        raise error


def test_a_body_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(KeyError):
        write_half(tmp_path / "a", KeyError("x"))
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_disk_that_fills_up_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(OutputFileError, match="a: cannot be written: No space") as caught:
        write_half(tmp_path / "a", OSError(28, "No space left on device"))
    assert caught.value.exit_code == 3
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OutputFileError, match="cannot be written: No such file"):
        write_file(tmp_path / "no" / "a", b"")


def test_what_is_no_regular_file_is_written_to(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file(tmp_path / "pipe", b"data")
    assert os.read(reader, 100) == b"data"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    write_file(Path(os.devnull), b"data")
    assert Path(os.devnull).is_char_device()


def test_arrays_get_the_name_that_numpy_gives_them(tmp_path: Path) -> None:
    write_arrays(tmp_path / "o", "out", [])
    write_arrays(tmp_path / "p.npz", "out", [])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.npz", "p.npz"]


def limited() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))


@pytest.mark.parametrize(
    "command", [("run", str(MODULE), "--outputs"), ("compile", str(MODULE), "-o")]
)
def test_a_good_file_survives_outputs_that_do_not_fit(
    command: tuple[str, ...], tmp_path: Path
) -> None:
    target = tmp_path / "o.npz"
    target.write_bytes(b"good" * 10)
    done = subprocess.run(
        (sys.executable, "-m", "launch", *command, str(target)),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=limited,
        # Python 3.11 would keep what fits of a module's bytecode, for every process after this one.
        env={**os.environ, "SPMD_OBJECT_CACHE": "off", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 3
    assert done.stderr.splitlines() == [f"spmd: error: {target}: cannot be written: File too large"]
    assert [path.name for path in tmp_path.iterdir()] == ["o.npz"]
    assert target.read_bytes() == b"good" * 10
