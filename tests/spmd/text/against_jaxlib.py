"""Read every text of some folders with our reader and with XLA's, and tabulate who takes what (needs the jax extra).

    python -m tests.spmd.text.against_jaxlib FOLDER... [--show KIND] [--report FILE]

What both take must print to a fixpoint, and XLA must read our text as the same module that it reads from the original.
"""

from __future__ import annotations

import argparse
import difflib
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from spmd.errors import SpmdError
from spmd.text.parser import parse_module
from spmd.text.printer import print_module
from spmd.verifier import verify
from tests.spmd.text.jaxlib_worker import Answer, JaxlibReader

_CONSTANT = re.compile(r"\bconstant\(.*\)")


@dataclass(frozen=True)
class Verdict:
    """``ours`` and ``xla``: the message of a reader that refuses the text, "" where it takes it.

    ``verifier``: our verifier's message about what our reader took. ``print``: what goes wrong when it is printed.
    """

    path: str
    ours: str
    xla: str
    xla_died: bool
    verifier: str = ""
    print: str = ""

    @property
    def kind(self) -> str:
        if self.xla_died:
            return "XLA ends or hangs" + (", ours takes" if not self.ours else "")
        if bool(self.ours) == bool(self.xla):
            return "both refuse" if self.ours else "both take"
        return "only XLA takes" if self.ours else "only ours takes"


def judge(path: Path, reader: JaxlibReader) -> Verdict:
    """Return both readers' answers about one text."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    xla = reader.read(text)
    try:
        module = parse_module(text, path.name)
    except SpmdError as error:
        return Verdict(str(path), str(error), xla.error, xla.died)
    verifier = ""
    try:
        verify(module)
    except SpmdError as error:
        verifier = str(error)
    fault = _printing_fault(print_module(module, as_dump=True), xla, reader)
    return Verdict(str(path), "", xla.error, xla.died, verifier, fault)


def _printing_fault(printed: str, xla: Answer, reader: JaxlibReader) -> str:
    try:
        again = print_module(parse_module(printed), as_dump=True)
    except SpmdError as error:
        return f"our reader refuses our text: {error}"
    if again != printed:
        return f"no fixpoint: {_difference(printed, again)}"
    if xla.error:
        return ""
    theirs = reader.read(printed)
    if theirs.error:
        return f"XLA refuses our text: {theirs.error}"
    before, after = xla.text, theirs.text
    if xla.invents_values or theirs.invents_values:
        before, after = (_CONSTANT.sub("constant()", text) for text in (before, after))
    if before != after:
        return f"XLA reads our text differently: {_difference(before, after)}"
    return ""


def _difference(before: str, after: str) -> str:
    changed = difflib.unified_diff(before.split("\n"), after.split("\n"), lineterm="", n=0)
    return "\n".join(line[:600] for line, _ in zip(changed, range(12), strict=False))


def judge_all(folders: list[Path]) -> Iterator[Verdict]:
    """A verdict for every text in the folders."""
    with JaxlibReader() as reader:
        for path in _paths(folders):
            yield judge(path, reader)


def _paths(folders: list[Path]) -> Iterator[Path]:
    for folder in folders:
        yield from sorted(path for path in folder.rglob("*") if path.suffix in (".hlo", ".txt"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument(
        "--show", default="only XLA takes", help="kind of text to name with messages"
    )
    parser.add_argument(
        "--report", type=Path, help="write every verdict there, one JSON object a line"
    )
    options = parser.parse_args()
    kinds: Counter[str] = Counter()
    verdicts: list[Verdict] = []
    for verdict in judge_all(options.folders):
        verdicts.append(verdict)
        kinds[verdict.kind] += 1
        kinds["both take, our verifier refuses"] += verdict.kind == "both take" and bool(
            verdict.verifier
        )
        kinds["printing faults"] += bool(verdict.print)
        if verdict.kind == options.show:
            print(f"{verdict.path}\n  ours: {verdict.ours}\n  XLA: {verdict.xla}")
        if verdict.print:
            print(f"{verdict.path}\n  {verdict.print}")
    if options.report is not None:
        lines = (json.dumps(asdict(verdict) | {"kind": verdict.kind}) for verdict in verdicts)
        options.report.write_text("\n".join(lines) + "\n", encoding="utf-8")
    for kind, count in sorted(kinds.items()):
        print(f"{count:7} {kind}")
    return int(kinds["only XLA takes"] + kinds["printing faults"] > 0)


if __name__ == "__main__":
    sys.exit(main())
