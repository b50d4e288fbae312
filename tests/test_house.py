"""The house rules, checked by reading the sources: package resolution, import fences, reads of the environment."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectives.communicator.kinds.all_kinds import ALL_KINDS
from tests.field_terms import names_with_own_words
from tests.paths import ROOT
from tests.source_facts import PACKAGES, SOURCE_FOLDERS, files, source_facts

FENCES = {
    "mpi4py": ("collectives/communicator/mpi/*",),
    "cupy": (
        "collectives/communicator/nccl/*",
        "runtime/gpu/availability*",
        "runtime/gpu/cuda/*",
    ),
    "cupyx": ("runtime/gpu/cuda/*",),
    "cupy_backends": ("runtime/gpu/availability*", "runtime/gpu/cuda/*"),
    "llvmlite": ("runtime/codegen/llvm/*", "runtime/gpu/codegen/ptx_module*"),
    "triton": ("runtime/gpu/triton/compilation*",),
}
FORBIDDEN_EVERYWHERE = ("pickle", "marshal", "shelve", "dill", "cloudpickle")


def texts(*packages: str) -> Iterator[tuple[str, str]]:
    for package in packages:
        for path in files(package):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


@pytest.mark.parametrize("package", PACKAGES)
def test_package_resolves_inside_this_tree(package: str) -> None:
    """The names are generic: another distribution's `runtime` must not be picked up instead."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / package


@pytest.mark.parametrize("library", FENCES)
def test_library_is_imported_only_behind_its_fence(library: str) -> None:
    outside = [
        source.path
        for source in source_facts()
        if library in source.imported
        and not any(fnmatch.fnmatch(source.path, pattern) for pattern in FENCES[library])
    ]
    assert outside == []


def test_no_serializer_that_runs_code() -> None:
    forbidden = set(FORBIDDEN_EVERYWHERE)
    assert [source.path for source in source_facts() if source.imported & forbidden] == []


def test_only_launch_reads_argv_and_the_environment() -> None:
    reads = re.compile(r"\b(os\.environ|os\.getenv|environb|getenv|sys\.argv)\b")
    named = re.compile("environ|getenv|argv")  # also in comments: few files are read as code
    readers = [
        path
        for path, text in texts("spmd", "partitioner", "collectives", "runtime")
        if named.search(text) and reads.search(ast.unparse(ast.parse(text)))
    ]
    assert readers == []


def test_mpi_sends_buffers_and_never_pickles() -> None:
    """mpi4py's lower-case methods pickle; what crosses ranks here is bytes and arrays."""
    lower_case = re.compile(
        r"\.(i?send|i?s?send|i?recv|sendrecv|bcast|gather|scatter|allgather|alltoall|reduce|allreduce|scan|exscan)$"
    )
    calls = [
        f"{path}: {ast.unparse(node.func)}"
        for path, text in texts("collectives", "launch")
        if "/mpi/" in path or path in ("launch/mpirun.py", "launch/ranks/world.py")
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and lower_case.search(ast.unparse(node.func))
    ]
    assert calls == []


def test_every_module_begins_with_a_docstring_and_postponed_annotations() -> None:
    assert [source.path for source in source_facts() if not source.has_docstring] == []
    assert [
        source.path
        for source in source_facts()
        if source.definitions and not source.has_postponed_annotations
    ] == []


#: Beginnings of docstrings that name no subject: "Of what programs may fill."
RIDDLES = re.compile(
    r"(Of|That|As|Whether|Say whether|Who|Whom|Whose|What|Where|How|To be|((In|On|By|With|From|To) )?[Ww]hich)\b"
)


@pytest.mark.parametrize("folder", SOURCE_FOLDERS)
def test_docstrings_say_what_a_thing_is_or_does(folder: str) -> None:
    """A class is a noun phrase, a function a verb: no docstring begins as a relative clause or an indirect question."""
    riddles = [
        f"{source.path}: {docstring.splitlines()[0]}"
        for source in source_facts(folder)
        for docstring in source.docstrings
        if RIDDLES.match(docstring)
    ]
    assert riddles == []


#: Coined words, replaced by the field's: ThreadTeam, Worker, NodeBarrier, StallDetector, Watchdog, PackedMessages, ...
COINED = re.compile(
    r"\w*(Crew|crew|Vigil|vigil|Attendant|attendant|Parcel|parcel|Household|household|Culprit|culprit"
    r"|Unwritten|Circumstances|Residency)\w*"
)


#: Largest number of lines of a file, except tables of coefficients, which a benchmark computes.
MOST_LINES = 400
TABLES = {"runtime/codegen/elements/constants.py", "runtime/codegen/elements/intervals.py"}


def test_files_are_short() -> None:
    long = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in files(package)
        if len(path.read_text(encoding="utf-8").splitlines()) > MOST_LINES
    }
    assert long == TABLES


def test_names_are_the_fields() -> None:
    """Classes, functions and modules have the terms of XLA, MPI, CUDA and compilers."""
    coined = [
        f"{source.path}: {name}"
        for source in source_facts()
        for name in (Path(source.path).stem, *source.definitions)
        if COINED.fullmatch(name)
    ]
    assert coined == []


#: Folders (or patterns of files) of which every defined name consists of the field's terms.
FOLDERS_WITH_FIELD_TERMS = (
    "collectives",
    "launch",
    "partitioner",
    "runtime/*.py",
    "runtime/arrays",
    "runtime/buffers",
    "runtime/codegen",
    "runtime/cpu",
    "runtime/emit",
    "runtime/fusion",
    "runtime/gpu",
    "runtime/layout",
    "runtime/program",
    "runtime/schedule",
    "runtime/timeline",
    "spmd",
)

#: Names that have one of ``OWN_WORDS`` in the field's sense.
EXCEPTIONS = {
    "ArraySlot": "memory of an entry parameter or result (docs/internals/glossary.md)",
    "Slots": "array slots of a program",
    "_slots": "array slots of a program",
    "slot": "array slot",
    "slots": "array slots",
    "__slots__": "Python's",
    "lane": "lane of a warp",
    "next_lane": "lane of a warp",
    "leading": "BLAS: the leading dimension of a matrix",
    **dict.fromkeys(
        (
            "SLOTS",
            "_SLOT_BYTES",
            "_SLOT_BYTES_OVERSUBSCRIBED",
            "_go_through_slots",
            "_slot_bytes",
            "_through_slots",
            "slot_bytes",
            "through_slots",
        ),
        "slots of a shared buffer, as in the queues of UCX and NCCL",
    ),
    **dict.fromkeys(
        ("_place", "place_groups", "place_pairs"), "placement of transfers on links, as in routing"
    ),
    "place_offloaded_values": "placement of values in memory spaces",
    "agreement": "agreement among processes, as in distributed computing",
    "take": "spmd.host_feed.HostFeed: a device takes the next item of a queue",
    "fold_transposes": "XLA's pass TransposeFolding",
    **dict.fromkeys(("heads", "HEADS_FIRST"), "heads of attention"),
    **dict.fromkeys(
        ("_lane_dimension", "_lane_offsets", "lane_offsets", "lane_strides"),
        "lanes of a SIMD vector",
    ),
    **dict.fromkeys(
        ("operand_lane", "result_lane", "source_lane"), "strides between lanes of a SIMD vector"
    ),
    **dict.fromkeys(
        (
            "CALL_WORDS",
            "GEMM_WORDS",
            "HEADER_WORDS",
            "_LINE_WORDS",
            "LOG_WORDS",
            "PANEL_WORDS",
            "PART_WORDS",
            "PHASE_WORDS",
            "PIECE_WORDS",
            "RECORD_WORDS",
            "TIMESTAMP_WORDS",
            "WORKER_WORDS",
        ),
        "a size in 64-bit words",
    ),
}


@pytest.mark.parametrize("folder", FOLDERS_WITH_FIELD_TERMS)
def test_names_consist_of_field_terms(folder: str) -> None:
    found = names_with_own_words(folder)
    assert {name: at for name, at in found.items() if name not in EXCEPTIONS} == {}


def test_exceptions_are_needed() -> None:
    found = set().union(*map(names_with_own_words, FOLDERS_WITH_FIELD_TERMS))
    assert sorted(set(EXCEPTIONS) - found) == []


def test_kinds_of_collectives_are_told_apart_in_their_folder_alone() -> None:
    """Differences between kinds are methods or facts of their classes: no other code tests for a kind."""
    names = {kind.__name__ for kind in ALL_KINDS}

    def tests_for_a_kind(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and _calls(node, "isinstance", "issubclass"):
            tested: list[ast.AST] = [*node.args[1:]]
        elif isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Call) and _calls(side, "type")
            for side in (node.left, *node.comparators)
        ):
            tested = [node]
        elif isinstance(node, ast.MatchClass):
            tested = [node.cls]
        else:
            return False
        return any(
            (isinstance(part, ast.Name) and part.id in names)
            or (isinstance(part, ast.Attribute) and part.attr in names)
            for one in tested
            for part in ast.walk(one)
        )

    found = [
        f"{path}:{getattr(node, 'lineno', 0)}"
        for path, text in texts(*PACKAGES)
        if not path.startswith("collectives/communicator/kinds/")
        and any(map(text.__contains__, names))
        for node in ast.walk(ast.parse(text))
        if tests_for_a_kind(node)
    ]
    assert found == []


def _calls(node: ast.Call, *functions: str) -> bool:
    return isinstance(node.func, ast.Name) and node.func.id in functions
