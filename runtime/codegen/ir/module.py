"""Text of a module of LLVM IR: its functions, their declarations, and the metadata of their loops."""

from __future__ import annotations

from collections.abc import Iterable


class Module:
    """Module that is written function by function.

    ``parts`` are texts of globals, declarations and functions. Equal texts are written once.
    """

    def __init__(self, *parts: str) -> None:
        self._parts: dict[str, None] = dict.fromkeys(parts)
        self._functions: list[str] = []
        self._vector_loops: list[int] = []

    def add(self, parts: Iterable[str]) -> None:
        """Add the texts ``parts``, which precede the functions."""
        self._parts.update(dict.fromkeys(parts))

    def declare(self, line: str) -> None:
        """Add the declaration ``line``."""
        self._parts[line] = None

    def add_function(self, text: str) -> None:
        """Add the function ``text``."""
        self._functions.append(text)

    def vector_loop(self, unroll: int) -> int:
        """Return a new metadata node of a loop of independent accesses, interleaved ``unroll`` times (0: any)."""
        self._vector_loops.append(unroll)
        return len(self._vector_loops)

    def text(self) -> str:
        """Return the text of the module."""
        return "\n".join([*self._parts, *self._functions, *self._metadata()])

    def _metadata(self) -> list[str]:
        if not self._vector_loops:
            return []
        facts = len(self._vector_loops) + 1
        loops = [
            f"!{i} = distinct !{{!{i}, !{facts}{_interleaved(unroll)}}}"
            for i, unroll in enumerate(self._vector_loops, 1)
        ]
        parallel = f'!{facts} = !{{!"llvm.loop.parallel_accesses", !0}}'
        return ["!0 = distinct !{}", *loops, parallel]


def _interleaved(unroll: int) -> str:
    return f', !{{!"llvm.loop.interleave.count", i32 {unroll}}}' if unroll else ""
