"""Inputs that mutations begin with: modules of the corpus and the fixtures, most of them cut small."""

from __future__ import annotations

import random
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
CASES = ROOT / "tests" / "cases"
FIXTURES = ROOT / "tests"
#: Texts up to this size are taken whole; longer ones mostly as excerpts.
SMALL = 4_000
#: One in so many draws takes a long text whole.
WHOLE_EVERY = 12

_CALLEE = re.compile(
    r"(?:to_apply|calls|body|condition|true_computation|false_computation|select|scatter)=%?([\w.\-]+)"
)
_BRANCHES = re.compile(r"(?:branch_computations|called_computations)=\{([^}]*)\}")
_HEAD = re.compile(r"(?:ENTRY )?%?([\w.\-]+)")


@cache
def text_seeds() -> tuple[str, ...]:
    """Every module of the corpus (of tests/cases where there is none), every fixture, every snippet of a grammar form."""
    cases = CORPUS if CORPUS.is_dir() else CASES
    files = [*sorted(cases.glob("*/module.hlo")), *sorted(cases.glob("*/peer.hlo"))]
    fixtures = [p for p in sorted(FIXTURES.rglob("*.hlo")) if CASES not in p.parents]
    texts = [path.read_text(encoding="utf-8") for path in (*files, *fixtures)]
    return (*texts, *(f"HloModule s\n\nENTRY e {{\n{body}\n}}\n" for body in _SNIPPETS))


@cache
def proto_seeds() -> tuple[bytes, ...]:
    """The small text seeds as protos."""
    from spmd.errors import SpmdError
    from spmd.proto import serialize
    from spmd.text.parser import parse_module

    protos: list[bytes] = []
    for number, text in enumerate(text_seeds()):
        try:
            small = text if len(text) <= SMALL else excerpt(text, random.Random(number))
            protos.append(serialize(parse_module(small)))
        except SpmdError:
            continue
    return tuple(protos)


def draw_text(rng: random.Random) -> str:
    text = rng.choice(text_seeds())
    if len(text) <= SMALL or rng.randrange(WHOLE_EVERY) == 0:
        return text
    return excerpt(text, rng)


def excerpt(text: str, rng: random.Random) -> str:
    """The header, the first lines of one computation, and the computations that these lines call."""
    header, *parts = text.split("\n\n")
    bodies: dict[str, str] = {}
    for part in parts:
        if "{\n" in part and (head := _HEAD.match(part)) is not None:
            bodies[head[1]] = part
    if not bodies:
        return text[:SMALL]
    lines = rng.choice(list(bodies.values())).splitlines()
    if len(lines) > 40:
        end = rng.randint(2, 40)
        parameters = [line for line in lines[end:] if " parameter(" in line]
        lines = [*lines[:end], *parameters, "}"]
    begin = "\n".join(lines)
    wanted: list[str] = []
    _collect(begin, bodies, wanted)
    return "\n\n".join([_short_header(header), *(bodies[name] for name in wanted), begin]) + "\n"


def _short_header(header: str) -> str:
    """Without what speaks of the whole entry."""
    kept = [
        p
        for p in header.split("\n")[0].split(", ")
        if p.startswith(("HloModule", "num_", "replica_", "is_"))
    ]
    return ", ".join(kept)


def _collect(part: str, bodies: dict[str, str], wanted: list[str]) -> None:
    """Names of the computations ``part`` needs, callees first."""
    names = [m[1] for m in _CALLEE.finditer(part)]
    for found in _BRANCHES.finditer(part):
        names += [name.strip().lstrip("%") for name in found[1].split(",")]
    for name in names:
        if name in bodies and name not in wanted:
            _collect(bodies[name], bodies, wanted)
            if name not in wanted:
                wanted.append(name)


_SNIPPETS = (
    "p = f32[?,4]{1,0} parameter(0)\nb = b(f32[4]{0}) parameter(1)\nROOT t = tuple(p, b)",
    "p = f32[8,8]{1,0:T(8,128)(2,1)S(1)} parameter(0), sharding={mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2}], replicated={'y':(2)2}}\n"
    "ROOT n = negate(p), sharding={devices=[2,2,2]<=[2,2,2]T(1,0,2) last_tile_dims={manual, replicated}}",
    "c = c64[2] constant({(1, -2.5), (-inf, nan)})\nd = f32[2,2] constant({ {nan(0x7fc00), -nan}, {1e-5, .5} })\n"
    "e = (s4[2], (pred[], u64[])) constant(({-8, 7}, (true, 18446744073709551615)))\nROOT t = tuple(c, d, e)",
    "p = bf16[1,8,8,3] parameter(0)\nk = bf16[3,3,3,16] parameter(1)\n"
    "ROOT c = bf16[1,4,4,16] convolution(p, k), window={size=3x3 stride=2x2 pad=0_1x0_1 rhs_reversal=0x1}, dim_labels=b01f_01io->b01f",
    "p = f32[16] parameter(0)\nr = f32[8] reduce-scatter(p), replica_groups=mesh['x'=2,'y'=2] {'y'}, channel_id=1, dimensions={0}, "
    "use_global_device_ids=true, to_apply={ a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT s = f32[] add(a, b) }\nROOT n = negate(r)",
    "p = f32[10,4] parameter(0)\ni = s32[5,1] parameter(1)\nROOT g = f32[5,4] gather(p, i), offset_dims={1}, collapsed_slice_dims={0}, "
    "start_index_map={0}, index_vector_dim=1, slice_sizes={1,4}, indices_are_sorted=true",
    "p = f32[4] parameter(0)\ns = ((f32[4]), f32[4], s32[]) async-start(p), calls={ q = f32[4] parameter(0)\n ROOT n = f32[4] negate(q) }\n"
    "ROOT d = f32[4] async-done(s)",
    'p = f32[6] parameter(0)\nROOT c = f32[6] custom-call(p), custom_call_target="t", api_version=API_VERSION_TYPED_FFI, '
    "backend_config={a = 1 : i32}, operand_layout_constraints={f32[6]{0}}, output_to_operand_aliasing={{}: (0, {})}",
    'p = f32[2,3] parameter(0), metadata={op_type="a" op_name="b" source_file="c" source_line=1 stack_frame_id=3}, '
    'frontend_attributes={xla.sdy.sharding="#sdy.sharding_per_value<[<@mesh, [{\\"x\\"}]>]>",k={n = 1}}\n'
    "ROOT b = f32[3,2,5] broadcast(p), dimensions={1,0}",
    "p = (f32[2], (s32[], token[])) parameter(0)\nROOT a = add(f32[2] get-tuple-element(p), p#0), statistics={visualizing_index=1,s-1=33}",
)
