"""Records of named words for native code: the index of each name, and the addresses of lists."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from spmd.literal import NDArray

Words: TypeAlias = Sequence[int] | NDArray


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """64-bit words by name, in order; ``pointers`` are read as such."""

    names: tuple[str, ...]
    pointers: frozenset[str]

    def read(self, *names: str) -> str:
        """Return lines that load each of these words of %record into %name."""
        kinds = ("ptr @pointer" if name in self.pointers else "i64 @word" for name in names)
        return "\n".join(
            f"  %{name} = call {kind}(ptr %record, i64 {self.names.index(name)})"
            for name, kind in zip(names, kinds, strict=True)
        )


def with_lists(head: Sequence[int], lists: Sequence[Words], address: int) -> NDArray:
    """Return the words of ``head``, then the addresses of ``lists``, then these; all of it begins at ``address``."""
    ends = np.cumsum([len(head) + len(lists), *map(len, lists)])
    parts = [head, address + 8 * ends[:-1], *lists]
    return np.concatenate([np.asarray(part, np.int64) for part in parts])
