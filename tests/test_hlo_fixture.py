"""The `.hlo` fixture collector itself: a fixture that should fail does."""

from __future__ import annotations

import pytest

import launch.cli  # noqa: F401 - pytester forgets what a run inside it imports, and NumPy cannot be imported twice

pytest_plugins = ["pytester"]

CONFTEST = """
from hlo_fixture import HloFixture

def pytest_collect_file(file_path, parent):
    if file_path.suffix == ".hlo":
        return HloFixture.from_parent(parent, path=file_path)
"""
MODULE = """
HloModule m
ENTRY e {
  a = f32[2] parameter(0)
  b = f32[2] parameter(1)
  ROOT r = f32[2] add(a, b)
}
"""


def run_fixture(pytester: pytest.Pytester, text: str) -> pytest.RunResult:
    pytester.makeconftest(CONFTEST)
    pytester.makefile(".hlo", fixture=text)
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:mpi", "fixture.hlo")


def test_checks_that_are_met(pytester: pytest.Pytester) -> None:
    result = run_fixture(pytester, f"// RUN: opt %s\n// CHECK: add(\n{MODULE}")
    result.assert_outcomes(passed=1)


def test_checks_that_are_not_met_show_the_output(pytester: pytest.Pytester) -> None:
    result = run_fixture(pytester, f"// RUN: opt %s\n// CHECK: multiply(\n{MODULE}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*--- output*", "*add(*"])


def test_a_fixture_without_checks_fails(pytester: pytest.Pytester) -> None:
    run_fixture(pytester, f"// RUN: opt %s\n{MODULE}").assert_outcomes(failed=1)


def test_each_run_line_has_its_own_prefix(pytester: pytest.Pytester) -> None:
    text = (
        "// RUN: opt %s | filecheck --check-prefix=A\n"
        "// RUN: opt %s | filecheck --check-prefix=B\n"
        "// A: add(\n// B: multiply(\n"
    )
    run_fixture(pytester, text + MODULE).assert_outcomes(passed=1, failed=1)


def test_a_command_that_fails_shows_its_error(pytester: pytest.Pytester) -> None:
    result = run_fixture(pytester, f"// RUN: opt %s\n// CHECK: add(\n{MODULE.replace('add', 'ad')}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*exit code 2*"])


@pytest.mark.parametrize(
    ("comment", "passes"),
    [
        ("// ERROR: one shape", True),
        ("// ERROR: something else", False),
    ],
)
def test_errors_name_their_line(pytester: pytest.Pytester, comment: str, passes: bool) -> None:
    text = MODULE.replace("add(a, b)", f"add(a, b)  {comment}").replace("b = f32[2]", "b = f32[3]")
    run_fixture(pytester, text).assert_outcomes(passed=int(passes), failed=int(not passes))


def test_an_error_on_another_line_does_not_pass(pytester: pytest.Pytester) -> None:
    text = MODULE.replace("parameter(0)", "parameter(0)  // ERROR: one shape").replace(
        "b = f32[2]", "b = f32[3]"
    )
    run_fixture(pytester, text).assert_outcomes(failed=1)


def test_a_module_that_is_accepted_fails_its_error(pytester: pytest.Pytester) -> None:
    run_fixture(pytester, f"// ERROR: one shape\n{MODULE}").assert_outcomes(failed=1)


def test_a_file_without_instructions_for_the_test_is_an_error(pytester: pytest.Pytester) -> None:
    run_fixture(pytester, MODULE).assert_outcomes(errors=1)
