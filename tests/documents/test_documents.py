"""Tests of README.md and docs/: links lead somewhere, every page is listed, and commands are accepted."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from launch.cli import build_parser
from tests.paths import ROOT

INDEX = ROOT / "docs" / "README.md"
PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", *PAGES]

_LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")
#: A line of a code block; what it does stands behind two spaces or a #.
_COMMAND = re.compile(r"^spmd (\S.*?)(?:  .*| # .*)?$", re.MULTILINE)


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_lead_somewhere(document: Path) -> None:
    targets = _LINK.findall(document.read_text(encoding="utf-8"))
    assert [t for t in targets if not (document.parent / t).exists()] == []


def test_the_index_lists_every_page_once() -> None:
    listed = _LINK.findall(INDEX.read_text(encoding="utf-8"))
    pages = [page.relative_to(INDEX.parent).as_posix() for page in PAGES if page != INDEX]
    assert sorted(listed) == sorted(pages), "each page has one line in docs/README.md"


def commands() -> list[str]:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    return [command for text in texts for command in _COMMAND.findall(text)]


def test_there_are_commands() -> None:
    assert len(commands()) > 10


@pytest.mark.parametrize("command", commands())
def test_commands_are_accepted(command: str) -> None:
    words = ["2" if word == "N" else word for word in shlex.split(command)]
    parser = build_parser()
    options = parser.parse_args(words)
    if options.command == "launch":
        parser.parse_args(options.arguments)
