"""Files, dump directories, and what is told apart by content."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import spmd
from spmd.errors import HloParseError

TEXT = "HloModule m\n\nENTRY e {\n  ROOT a = f32[2]{0} parameter(0)\n}\n"


def test_text_file(tmp_path: Path) -> None:
    path = tmp_path / "step.hlo"
    path.write_text(TEXT)
    assert str(spmd.load(path)) == TEXT
    assert str(spmd.load(str(path))) == TEXT


def test_errors_name_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.hlo"
    path.write_text(TEXT.replace("f32", "f33"))
    with pytest.raises(HloParseError, match=r"bad\.hlo:4:12: unknown element type 'f33'"):
        spmd.load(path)


def test_dump_directory(tmp_path: Path) -> None:
    with pytest.raises(HloParseError, match="no file"):
        spmd.load(tmp_path)
    (tmp_path / "module_0000.m.before_optimizations.txt").write_text(TEXT)
    (tmp_path / "module_0000.m.cpu_after_optimizations.txt").write_text("other")
    assert spmd.load(tmp_path).name == "m"
    (tmp_path / "module_0001.n.before_optimizations.txt").write_text(TEXT)
    with pytest.raises(HloParseError, match="2 modules; choose one"):
        spmd.load(tmp_path)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(HloParseError, match="No such file"):
        spmd.load(tmp_path / "none.hlo")


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (b"\x0a\x08jit_step\x12\x07main.10\x1a\xce\x02", HloParseError, "HloModuleProto"),
        (b"\x0a\x01m\x12\x01e", HloParseError, "HloModuleProto"),
        (b"", HloParseError, "empty"),
        (b" \n", HloParseError, "expected a computation"),
    ],
)
def test_other_contents(tmp_path: Path, data: bytes, error: type[Exception], message: str) -> None:
    path = tmp_path / "x"
    path.write_bytes(data)
    with pytest.raises(error, match=message):
        spmd.load(path)


def test_public_names_resolve_and_match_the_stub() -> None:
    stub = (Path(spmd.__file__).parent / "__init__.pyi").read_text()
    for name in spmd.__all__:
        assert getattr(spmd, name) is not None
        assert f'"{name}"' in stub
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        spmd.nonsense  # noqa: B018


def test_importing_spmd_imports_no_driver() -> None:
    code = "import sys, spmd; print([m for m in ('launch', 'numpy', 'partitioner', 'runtime') if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
