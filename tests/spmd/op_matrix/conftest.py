"""Every test of this folder runs under the recorder of cells; those that compare with a definition are recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spmd.op_matrix.cells import RECORDER

#: These compare a program with itself, with another program, or with XLA where it is installed.
NOT_JUDGING = ("test_examples", "test_grammar_lines", "test_refused", "test_as_xla", "test_cells")


@pytest.fixture(scope="session", autouse=True)
def recorder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        RECORDER.install(patch)
        yield


@pytest.fixture(autouse=True)
def judging(request: pytest.FixtureRequest) -> Iterator[None]:
    RECORDER.judging = request.path.stem not in NOT_JUDGING
    yield
    RECORDER.judging = False
