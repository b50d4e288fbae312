"""The house rules, checked by reading the sources: package resolution, import fences, reads of the environment."""

from __future__ import annotations

import ast
import fnmatch
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from collectives.communicator.kinds import ALL_KINDS
from tests.paths import ROOT

PACKAGES = ("spmd", "partitioner", "collectives", "runtime", "launch")

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
}
FORBIDDEN_EVERYWHERE = ("pickle", "marshal", "shelve", "dill", "cloudpickle")


def texts(*packages: str) -> Iterator[tuple[str, str]]:
    for package in packages or PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")


def sources(*packages: str) -> Iterator[tuple[str, ast.Module]]:
    for path, text in texts(*packages):
        yield path, ast.parse(text)


def imported(tree: ast.Module) -> Iterator[str]:
    """Top-level names of the modules that a source imports, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]
        elif (
            isinstance(node, ast.Call)
            and node.args
            and isinstance(node.args[0], ast.Constant)
            and ast.unparse(node.func) in ("import_module", "importlib.import_module", "__import__")
        ):
            yield str(node.args[0].value).partition(".")[0]


@pytest.fixture(scope="module")
def imports() -> dict[str, set[str]]:
    """Imports of every source file, read once."""
    return {path: set(imported(tree)) for path, tree in sources()}


@pytest.mark.parametrize("package", PACKAGES)
def test_package_resolves_inside_this_tree(package: str) -> None:
    """The names are generic: another distribution's `runtime` must not be picked up instead."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    assert Path(module.__file__).resolve().parent == ROOT / package


@pytest.mark.parametrize("library", FENCES)
def test_library_is_imported_only_behind_its_fence(
    library: str, imports: dict[str, set[str]]
) -> None:
    outside = [
        path
        for path, names in imports.items()
        if library in names
        and not any(fnmatch.fnmatch(path, pattern) for pattern in FENCES[library])
    ]
    assert outside == []


def test_no_serializer_that_runs_code(imports: dict[str, set[str]]) -> None:
    assert [path for path, names in imports.items() if names & set(FORBIDDEN_EVERYWHERE)] == []


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
        for path, tree in sources("collectives", "launch")
        if "/mpi/" in path or path in ("launch/mpirun.py", "launch/ranks/world.py")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and lower_case.search(ast.unparse(node.func))
    ]
    assert calls == []


def test_every_module_begins_with_a_docstring_and_postponed_annotations() -> None:
    missing = []
    for path, tree in sources():
        if tree.body and ast.get_docstring(tree) is None:
            missing.append(f"{path}: no docstring")
        defines = any(isinstance(node, (ast.FunctionDef, ast.ClassDef)) for node in tree.body)
        if defines and not has_postponed_annotations(tree):
            missing.append(f"{path}: no `from __future__ import annotations`")
    assert missing == []


#: Beginnings of docstrings that name no subject: "Of what programs may fill."
RIDDLES = re.compile(
    r"(Of|That|As|Who|Whom|Whose|What|Where|How|To be|((In|On|By|With|From|To) )?[Ww]hich)\b"
)


def test_docstrings_say_what_a_thing_is_or_does() -> None:
    """A class is a noun phrase, a function a verb: no docstring begins as a relative clause or an indirect question."""
    riddles = [
        f"{path}: {docstring.splitlines()[0]}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and (docstring := ast.get_docstring(node))
        and RIDDLES.match(docstring)
    ]
    assert riddles == []


#: Coined words, replaced by the field's: ThreadTeam, Worker, NodeBarrier, StallDetector, Watchdog, PackedMessages, ...
COINED = re.compile(
    r"\w*(Crew|crew|Vigil|vigil|Attendant|attendant|Parcel|parcel|Household|household|Culprit|culprit"
    r"|Unwritten|Circumstances|Residency)\w*"
)


def test_names_are_the_fields() -> None:
    """Classes, functions and modules have the terms of XLA, MPI, CUDA and compilers."""
    coined = [
        f"{path}: {name}"
        for path, tree in sources()
        for name in (
            Path(path).stem,
            *(
                node.name
                for node in ast.walk(tree)
                if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
            ),
        )
        if COINED.fullmatch(name)
    ]
    assert coined == []


#: Words that the project used for its own ideas, and the field's terms (docs/internals/glossary.md).
OLD_WORDS = {
    "crew": "ThreadTeam",
    "lane": "Worker; lane of a SIMD vector is an exception",
    "household guest keeper enroll introduce told": "none: no such idea is needed",
    "vigil glance": "StallDetector, poll",
    "culprit": "late_ranks, FirstBadPass",
    "attendant": "Watchdog",
    "mates": "local_ranks",
    "meeting": "Rendezvous",
    "board": "status table",
    "life lives": "RankState, LiveRanges",
    "whereabouts": "last_position",
    "looks patience nap": "polls, spins, spin_limit, sleep_timeout",
    "somebody nobody everybody": "the rank, the caller; NO_RANK, ALL_RANKS",
    "flight flights": "AsyncCollective; in_flight is an exception",
    "parcels": "PackedMessages",
    "fold": "chain reduction, device classes",
    "alike": "equal_on_all, class_id",
    "spot spots place places": "offset, index, position, slice, location",
    "foreign": "inexpressible",
    "leading": "axis_precedence, leading_dimension",
    "whole": "unsharded, full, entire",
    "remake": "rematerialize",
    "dear dearest price prices priced": "cost",
    "offer offers": "candidate, publish",
    "withheld": "deferred",
    "slot slots": "ValueSharding, field, word",
    "ties": "EquivalenceClasses",
    "retile": "change_tile_size",
    "reach": "halo_width, max_distance",
    "agreement": "tile_overlap, consistency check",
    "demand": "certain_uses",
    "outcome": "status, figures",
    "kept held": "retained, cached, storage, remaining",
    "beside": "concurrent, next to",
    "boundary": "ArraySpec",
    "setting": "FusionContext",
    "recipe": "FusedKernelSpec",
    "planned remember": "cached",
    "sharing": "ParallelTask, share",
    "residency": "ReuseDistance",
    "stamps": "timestamps",
    "words": "Record, fields; a size in 64-bit words is an exception",
    "form forms": "variant, algorithm, structural key, format, syntax",
    "walk walks": "ArrayAccess, traverse",
    "turned": "transposed, rotated",
    "near far": "window and array side; L1, L2",
    "movable": "relocatable",
    "unwritten": "uninitialized",
    "bundle bundles": "batch",
    "band bands": "row_block",
    "take takes": "gather, record, pop, supports",
    "odometer digits": "index counter, indices",
    "together": "unroll, interleave, vectors",
    "origin origins": "provenance",
    "gains": "speed-up, saved_seconds",
    "heads tails": "earliest, remaining",
    "circumstances": "ExposureInputs",
    "tries trials": "samples, candidates",
    "ink": "Palette",
}

#: Folders in which no name has one of these words.
FOLDERS_WITH_FIELD_TERMS = (
    "runtime/codegen",
    "runtime/cpu",
)

#: Names, and sequences of words in longer names, that are terms of the field.
EXCEPTIONS = {
    "in_place": "an operation in its operand's memory, as MPI_IN_PLACE",
    "in_flight": "a collective between its start and its done",
    "leading_zeros": "of an integer, as the opcode count-leading-zeros",
    "slots": "Python's __slots__; ArraySlots are the memory of entry parameters and results",
    "work_sharing": "OpenMP's term for the split of work among a team's threads",
    "leading_dimension": "of a matrix, as BLAS calls its stride",
    **dict.fromkeys(("lane_dimension", "lane_offsets", "lane_strides"), "lanes of a SIMD vector"),
    **dict.fromkeys(
        ("operand_lane", "result_lane", "source_lane"), "strides between lanes of a SIMD vector"
    ),
    **dict.fromkeys(
        (
            "HEADER_WORDS",
            "RECORD_WORDS",
            "LOG_WORDS",
            "TIMESTAMP_WORDS",
            "WORKER_WORDS",
            "LINE_WORDS",
            "PIECE_WORDS",
            "CALL_WORDS",
            "GEMM_WORDS",
            "INSTANCE_WORDS",
            "PANEL_WORDS",
            "PART_WORDS",
            "PHASE_WORDS",
            "TAP_WORDS",
            "UNIT_WORDS",
        ),
        "a size in 64-bit words",
    ),
}


def words_of(name: str) -> list[str]:
    """Return the words of a name in snake case or camel case, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+(?![a-z])", name)]


def defined_names(path: str, tree: ast.Module) -> Iterator[str]:
    """Yield the names that a source defines: of the file, classes, functions, parameters, fields and variables."""
    yield Path(path).stem
    for node in ast.walk(tree):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def test_finished_folders_have_the_terms_of_the_field() -> None:
    """No name that they define has an old word, apart from the exceptions, each of which is needed."""
    terms = {word: term for old, term in OLD_WORDS.items() for word in old.split()}
    exceptions = {f" {' '.join(words_of(name))} ": name for name in EXCEPTIONS}
    found: set[str] = set()
    used: set[str] = set()
    for path, tree in sources():
        if not path.startswith(tuple(f"{folder}/" for folder in FOLDERS_WITH_FIELD_TERMS)):
            continue
        for name in set(defined_names(path, tree)):
            text = f" {' '.join(words_of(name))} "
            if terms.keys().isdisjoint(text.split()):
                continue
            for words, exception in exceptions.items():
                if words in text:
                    used.add(exception)
                    text = text.replace(words, " ")
            found.update(f"{path}: {name}: {terms[w]}" for w in text.split() if w in terms)
    assert sorted(found) == []
    assert sorted(EXCEPTIONS.keys() - used) == []


def test_kinds_of_collectives_are_told_apart_in_their_folder_alone() -> None:
    """Differences between kinds are methods or facts of their classes: no other code tests for a kind."""
    names = {kind.__name__ for kind in ALL_KINDS}

    def tests_for_a_kind(node: ast.AST) -> bool:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "issubclass"):
            tested: list[ast.AST] = [*node.args[1:]]
        elif isinstance(node, ast.Compare) and any(
            isinstance(side, ast.Call) and ast.unparse(side.func) == "type"
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
        for path, tree in sources()
        if not path.startswith("collectives/communicator/kinds/")
        for node in ast.walk(tree)
        if tests_for_a_kind(node)
    ]
    assert found == []


def has_postponed_annotations(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.ImportFrom)
        and node.module == "__future__"
        and any(alias.name == "annotations" for alias in node.names)
        for node in tree.body
    )
