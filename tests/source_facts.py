"""Facts of the sources for the house rules, read from each file once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.paths import ROOT

PACKAGES = ("spmd", "partitioner", "collectives", "runtime", "launch")
#: The packages, and the folders of sources beside them.
SOURCE_FOLDERS = (*PACKAGES, "tests", "benchmarks")

_POSTPONED = re.compile(r"^from __future__ import .*\bannotations\b", re.MULTILINE)
_IMPORTING_CALLS = ("import_module", "importlib.import_module", "__import__")


@dataclass
class SourceFacts:
    """Facts of one source file, without its syntax tree.

    Attributes:
        path: The file, relative to the repository.
        has_docstring: It begins with a docstring, or holds nothing.
        has_postponed_annotations: It imports ``annotations`` from ``__future__``.
        imported: Top-level names of the modules that it imports, inside functions too.
        docstrings: All docstrings: of the module, of classes and of functions.
        definitions: Names of classes and functions.
        names: Line and name of the module and of all that it defines: classes, functions, parameters, variables, fields.
    """

    path: str
    has_docstring: bool
    has_postponed_annotations: bool
    imported: set[str] = field(default_factory=set)
    docstrings: list[str] = field(default_factory=list)
    definitions: list[str] = field(default_factory=list)
    names: list[tuple[int, str]] = field(default_factory=list)

    @classmethod
    def of(cls, path: Path) -> SourceFacts:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        facts = cls(
            path.relative_to(ROOT).as_posix(),
            not tree.body or ast.get_docstring(tree) is not None,
            _POSTPONED.search(text) is not None,
        )
        facts.names.append((0, path.stem))
        for node in ast.walk(tree):
            facts._add(node)
        return facts

    def _add(self, node: ast.AST) -> None:
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            docstring = ast.get_docstring(node)
            self.docstrings.extend([docstring] if docstring else [])
            if not isinstance(node, ast.Module):
                self.definitions.append(node.name)
                self.names.append((node.lineno, node.name))
        elif isinstance(node, ast.arg):
            self.names.append((node.lineno, node.arg))
        elif isinstance(node, ast.Name):
            if isinstance(node.ctx, ast.Store):
                self.names.append((node.lineno, node.id))
        elif isinstance(node, ast.Attribute):
            if isinstance(node.ctx, ast.Store):
                self.names.append((node.lineno, node.attr))
        elif isinstance(node, (ast.Import, ast.ImportFrom, ast.Call)):
            self.imported.update(_imported(node))


def source_facts(*folders: str) -> list[SourceFacts]:
    """Return the facts of all source files in ``folders``, by default in the packages."""
    return [_facts_of(path) for folder in folders or PACKAGES for path in files(folder)]


def files(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


@cache
def _facts_of(path: Path) -> SourceFacts:
    return SourceFacts.of(path)


def _imported(node: ast.Import | ast.ImportFrom | ast.Call) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name.partition(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        if node.module:
            yield node.module.partition(".")[0]
    elif (
        node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
        and ast.unparse(node.func) in _IMPORTING_CALLS
    ):
        yield node.args[0].value.partition(".")[0]
