"""The modules of a directory that ``--xla_dump_to`` wrote, before optimization, and the choice of one.

DIR                    the only module
DIR:jit_step           the one of that name, or the only one whose name has this in it
DIR:12, DIR:module_0012.jit_step
"""

from __future__ import annotations

import re
from pathlib import Path

from spmd.errors import HloParseError
from spmd.lazy_dataclass import dataclass

_STAGE = "before_optimizations"
#: Text comes first: it has information that no proto has (partitions, sharding propagation).
_TEXT = ".txt"
_PROTOS = (".hlo.pb", ".hlo.pb.gz")
_STEM = re.compile(r"(?:\d+\.)?(module_0*(\d+))(?:\.(.*))?")
#: Number of modules that a message lists.
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class DumpedModule:
    """A module of a dump directory. ``stem``: such as ``module_0012.jit_step``; at least one of the files exists."""

    stem: str
    text: Path | None
    proto: Path | None

    @property
    def file(self) -> Path:
        file = self.text or self.proto
        assert file is not None
        return file

    @property
    def size(self) -> int:
        """Bytes of the file."""
        return self.file.stat().st_size

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which it may be chosen: ``module_0012.jit_step``, ``module_0012``, ``12``, ``jit_step``."""
        found = _STEM.fullmatch(self.stem)
        return (self.stem,) if found is None else (self.stem, *(x for x in found.groups() if x))


def split_choice(path: Path) -> tuple[Path, str]:
    """Split ``DIR:NAME`` into the directory and the name; other text is the directory, with an empty name."""
    folder, colon, choice = str(path).rpartition(":")
    if colon and not path.exists() and Path(folder).is_dir():
        return Path(folder), choice
    return path, ""


def dumped_module(folder: Path, choice: str) -> DumpedModule:
    """Return the module that ``choice`` names; if it is empty, the only module.

    Raises HloParseError, with a list of the modules, if there is no such one, or more than one.
    """
    modules = _modules(folder)
    if not modules:
        raise HloParseError(
            f"{folder}: no file *.{_STAGE}{_TEXT} or *.{_STAGE}{_PROTOS[0]} in this directory"
        )
    chosen = [m for m in modules if choice in m.names] if choice else modules
    chosen = chosen or [m for m in modules if choice in m.stem]
    if not chosen:
        raise HloParseError(f"{folder}: no module is named {choice!r}\n{_listed(modules)}")
    if len(chosen) > 1:
        which = f"{len(chosen)} modules" + (f" have {choice!r} in their names" if choice else "")
        largest = max(chosen, key=lambda m: m.size).names
        raise HloParseError(
            f"{folder}: {which}; choose one by its number or a part of its name, such as "
            f"{folder}:{largest[1] if len(largest) > 1 else largest[0]}\n{_listed(chosen)}"
        )
    return chosen[0]


def _modules(folder: Path) -> list[DumpedModule]:
    """Return the modules in the order of their names."""
    files: dict[str, dict[str, Path]] = {}
    for extension in (_TEXT, *_PROTOS):
        suffix = f".{_STAGE}{extension}"
        for path in sorted(folder.glob(f"*{suffix}")):
            files.setdefault(path.name.removesuffix(suffix), {})[extension] = path
    return [
        DumpedModule(
            stem,
            paths.get(_TEXT),
            next((paths[extension] for extension in _PROTOS if extension in paths), None),
        )
        for stem, paths in sorted(files.items())
    ]


def _listed(modules: list[DumpedModule]) -> str:
    """Return one line per module with its size, the largest first."""
    by_size = sorted(modules, key=lambda m: (-m.size, m.stem))
    lines = [f"  {m.size:>10,} bytes  {m.stem}" for m in by_size[:_SHOWN]]
    if len(by_size) > _SHOWN:
        lines.append(f"  and {len(by_size) - _SHOWN} smaller ones")
    return "\n".join(lines)
