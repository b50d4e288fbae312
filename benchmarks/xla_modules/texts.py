"""Extract the HLO modules of an XLA source tree: raw strings in C++ sources, and .hlo files.

    python -m benchmarks.xla_modules.texts REPOSITORY FOLDER

REPOSITORY is a git repository; its newest commit is read. Each text that holds a module with an entry is written to
FOLDER/DIGEST.hlo, once, and FOLDER/index.json says which source it comes from. Strings with placeholders ($0, %s) are
written as they are: neither reader takes them.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_RAW_STRING = re.compile(r'R"(\w*)\((.*?)\)\1"', re.DOTALL)
_SOURCES = (".cc", ".hlo")
#: Stands between the modules of one text.
_SEPARATOR = "// -----"


def sources(repository: Path) -> Iterator[tuple[str, str]]:
    """Yield path and text of each C++ or HLO file of the repository's newest commit."""
    git = ["git", "-C", str(repository)]
    listed = subprocess.run([*git, "ls-tree", "-r", "HEAD"], capture_output=True, check=True)
    with subprocess.Popen(
        [*git, "cat-file", "--batch"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in listed.stdout.decode().splitlines():
            about, path = line.split("\t", 1)
            if not path.endswith(_SOURCES):
                continue
            process.stdin.write(about.split()[2].encode() + b"\n")
            process.stdin.flush()
            header = process.stdout.readline().split()
            if header[-1] == b"missing":  # the copy of the repository may lack its largest files
                continue
            yield path, process.stdout.read(int(header[-1])).decode(errors="replace")
            process.stdout.read(1)
        process.stdin.close()


def modules(repository: Path) -> Iterator[tuple[str, str]]:
    """Yield source path and text of each module with an entry; equal texts once."""
    seen = set()
    for path, text in sources(repository):
        whole = path.endswith(".hlo")
        strings = [text] if whole else [m.group(2) for m in _RAW_STRING.finditer(text)]
        for found in (part for string in strings for part in string.split(_SEPARATOR)):
            if "HloModule" in found and "ENTRY" in found and found not in seen:
                seen.add(found)
                yield path, found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("repository", type=Path)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    index = {}
    for path, text in modules(options.repository):
        name = hashlib.sha256(text.encode()).hexdigest()[:12]
        index[name] = path
        (options.folder / f"{name}.hlo").write_text(text)
    (options.folder / "index.json").write_text(json.dumps(index, indent=1))
    print(f"{len(index)} modules")
    return 0


if __name__ == "__main__":
    sys.exit(main())
