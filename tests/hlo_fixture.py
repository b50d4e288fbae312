"""A `.hlo` file as a test: `// RUN:` commands matched against `// CHECK` lines, `// ERROR:` for what is refused.

// RUN: opt --passes=dce %s                    a command of `spmd` without its name; %s is this file
// CHECK: add(                                 FileCheck's rules, on the command's standard output
// RUN: opt %s | filecheck --check-prefix=B    matched against the `// B:` lines instead
%r = f32[2] add(a, b, c)  // ERROR: operands   the file is refused; the error names this line and says "operands"
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser

RUN = re.compile(r"^\s*//\s*RUN:\s*(.*\S)\s*$")
ERROR = re.compile(r"//\s*ERROR:\s*(.*\S)\s*$")


class HloFixture(pytest.File):
    """One file; one item per RUN line, one for all its ERROR lines."""

    def collect(self) -> Iterator[pytest.Item]:
        lines = self.path.read_text(encoding="utf-8").splitlines()
        commands = [match.group(1) for line in lines if (match := RUN.match(line))]
        for index, command in enumerate(commands):
            name = "run" if len(commands) == 1 else f"run{index}"
            yield RunItem.from_parent(self, name=name, command=command)
        errors = list(expected_errors(lines))
        if errors:
            yield ErrorItem.from_parent(self, name="error", lines=lines, errors=errors)
        if not commands and not errors:
            raise self.CollectError(f"{self.path}: neither a RUN nor an ERROR line")


def expected_errors(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(1-based line, text) of each ERROR comment; one that stands alone speaks of the next line."""
    for number, line in enumerate(lines, start=1):
        if match := ERROR.search(line):
            alone = not line[: match.start()].strip()
            yield number + alone, match.group(1)


class FixtureError(Exception):
    """The fixture's expectation and what was found, as one readable text."""


class FixtureItem(pytest.Item):
    def repr_failure(
        self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None
    ) -> str:
        if isinstance(excinfo.value, FixtureError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, f"{self.path.name}: {self.name}"


class RunItem(FixtureItem):
    """Run one command in this process and match what it prints."""

    def __init__(self, *, command: str, **kwargs: object) -> None:
        super().__init__(**kwargs)
        self.command = command

    def runtest(self) -> None:
        from launch.cli import main

        command, _, matching = self.command.partition("|")
        arguments = [word.replace("%s", str(self.path)) for word in shlex.split(command)]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
        if code != 0:
            raise FixtureError(f"spmd {self.command}: exit code {code}\n{err.getvalue()}")
        report = match_checks(self.path, out.getvalue(), check_prefix(matching))
        if report:
            raise FixtureError(f"spmd {self.command}\n{report}\n--- output\n{out.getvalue()}")


class ErrorItem(FixtureItem):
    """Load and verify the file; it has to be refused on the line and with the words expected."""

    def __init__(
        self, *, lines: list[str], errors: list[tuple[int, str]], **kwargs: object
    ) -> None:
        super().__init__(**kwargs)
        self.lines = lines
        self.errors = errors

    def runtest(self) -> None:
        import spmd
        from spmd.errors import SpmdError

        try:
            spmd.verify(spmd.load(self.path))
        except SpmdError as error:
            message = str(error)
        else:
            raise FixtureError(f"accepted, but these errors were expected: {self.errors}")
        for line, text in self.errors:
            if text not in message or not self._names(message, line):
                raise FixtureError(f"expected on line {line}: {text}\nfound: {message}")

    def _names(self, message: str, line: int) -> bool:
        """Return whether the message names the line.

        The parser names it by its number, and the verifier by the instruction that stands there.
        """
        instruction = re.match(r"\s*(?:ROOT\s+)?%?([\w.-]+)\s*=", self.lines[line - 1])
        by_text = instruction is not None and re.search(
            rf"\bin: %?{re.escape(instruction[1])} = ", message
        )
        return f"{self.path.name}:{line}:" in message or bool(by_text)


def check_prefix(matching: str) -> str:
    """The prefix that the part after `|` asks for; CHECK where there is none."""
    match = re.fullmatch(r"\s*(?:filecheck(?:\s+--check-prefix=([\w-]+))?\s*)?", matching)
    if match is None:
        raise FixtureError(
            f"only `| filecheck [--check-prefix=P]` may follow a command: {matching}"
        )
    return match.group(1) or "CHECK"


def match_checks(path: Path, output: str, prefix: str) -> str:
    """FileCheck's report, empty where every check of `path` is met by `output`."""
    options = Options(match_filename=str(path), check_prefixes=[prefix])
    matcher = Matcher(options, FInput("output", output), Parser.from_opts(options))
    matcher.stderr = report = io.StringIO()
    code = matcher.run()
    return (report.getvalue() or f"FileCheck: {code}") if code else ""
