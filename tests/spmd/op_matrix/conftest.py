"""Every test of this folder runs under the recorder of cells; those that compare with a definition are recorded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spmd.op_matrix.cells import RECORDER

#: Tests of test_small_dims.py that are defined by the elements of a vector.
SHAPES_ALONE = ("test_unary", "test_binary", "test_others")
FOLDER = Path(__file__).parent
#: These compare a program with itself, with another program, or with XLA where it is installed.
NOT_JUDGING = ("test_examples", "test_grammar_lines", "test_refused", "test_as_xla", "test_cells")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The table is judged when all else has run."""
    items.sort(key=lambda item: item.path == FOLDER / "test_cells.py")


def pytest_collection_finish(session: pytest.Session) -> None:
    chosen = session.config.option
    files = {item.path for item in session.items}
    judging = {p for p in FOLDER.glob("test_*.py") if p.stem not in NOT_JUDGING}
    RECORDER.whole = (
        not (chosen.keyword or chosen.markexpr)
        and not any("::" in argument for argument in session.config.args)
        and files >= judging
    )


@pytest.fixture(scope="session", autouse=True)
def recorder() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        RECORDER.install(patch)
        yield


@pytest.fixture(autouse=True)
def judging(request: pytest.FixtureRequest) -> Iterator[None]:
    RECORDER.judging = request.path.stem not in NOT_JUDGING
    RECORDER.shapes_alone = (
        request.path.stem == "test_small_dims" and request.function.__name__ in SHAPES_ALONE
    )
    yield
    RECORDER.judging = False
