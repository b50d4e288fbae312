"""Short elementwise loops as kernels: which become one, and that these compute what the loop did."""

from __future__ import annotations

import pytest

from launch.pipeline import compile_module
from runtime.fusion.while_loop_fusion import WhileLoopFusion
from runtime.program.thunks import WhileThunk
from spmd.evaluator.evaluator import evaluate
from spmd.hlo import HloModule, Opcode
from spmd.hlo.clone import clone_module
from spmd.text.parser import parse_module
from tests.paths import TESTS
from tests.runtime.programs.build import assert_same, random_inputs

#: One round of a hash: x and y are mixed by shifts from tables that change places, and keys take turns.
MIXED = """
  mixed = u32[6,2] add(x, y)
  these_part = u32[1] slice(these), slice={[1:2]}
  amount = u32[] reshape(these_part)
  amounts = u32[6,2] broadcast(amount), dimensions={}
  left = u32[6,2] shift-left(y, amounts)
  width = u32[] constant(32)
  rest = u32[] subtract(width, amount)
  rests = u32[6,2] broadcast(rest), dimensions={}
  right = u32[6,2] shift-right-logical(y, rests)
  turned = u32[6,2] or(left, right)
  key_column = u32[6] reshape(key)
  keys = u32[6,2] broadcast(key_column), dimensions={0}
  keyed = u32[6,2] add(mixed, keys)
  hashed = u32[6,2] xor(turned, keyed)
"""
STATE = "(s32[], u32[6,2], u32[6,2], u32[6,1], u32[6,1], u32[2], u32[2])"


PARAMETERS = """
  x0 = u32[6,2] parameter(0)
  y0 = u32[6,2] parameter(1)
  key0 = u32[6,1] parameter(2)
"""
SEED = """
  seed = u32[] constant(77)
  x0 = u32[6,2] broadcast(seed), dimensions={}
  y0 = u32[6,2] iota(), iota_dimension=1
  key0 = u32[6,1] broadcast(seed), dimensions={}
"""


def loop(
    body: str = MIXED,
    end: str = "constant(5)",
    following: str = "hashed",
    result: str = "u32[6,2]",
    inputs: str = PARAMETERS,
) -> HloModule:
    return parse_module(f"""HloModule m

body {{
  s = {STATE} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = u32[6,2] get-tuple-element(s), index=1
  y = u32[6,2] get-tuple-element(s), index=2
  key = u32[6,1] get-tuple-element(s), index=3
  other = u32[6,1] get-tuple-element(s), index=4
  these = u32[2] get-tuple-element(s), index=5
  those = u32[2] get-tuple-element(s), index=6
  one = s32[] constant(1)
  next = s32[] add(i, one)
{body}
  ROOT t = {STATE} tuple(next, y, {following}, other, key, those, these)
}}

condition {{
  u = {STATE} parameter(0)
  j = s32[] get-tuple-element(u), index=0
  end = s32[] {end}
  ROOT less = pred[] compare(j, end), direction=LT
}}

ENTRY main {{
{inputs}
  zero = s32[] constant(0)
  unit = u32[] constant(7)
  units = u32[6,1] broadcast(unit), dimensions={{}}
  some = u32[2] constant({{13, 15}})
  others = u32[2] constant({{17, 29}})
  state = {STATE} tuple(zero, x0, y0, key0, units, some, others)
  loop = {STATE} while(state), condition=condition, body=body
  ROOT result = {result} get-tuple-element(loop), index={2 if result == "u32[6,2]" else 0}
}}
""")


def test_a_hash_of_five_rounds_is_one_kernel() -> None:
    module = loop()
    executable = compile_module(module, 1)
    (fusion,) = [x for x in executable.module.entry.instructions if x.opcode is Opcode.FUSION]
    assert len(fusion.operands) == 3
    assert not any(isinstance(thunk, WhileThunk) for thunk in executable.program.thunks.thunks)
    inputs = random_inputs(module, 0)
    assert_same(executable.run(*inputs), evaluate(module, *inputs))


def test_a_hash_of_constants_is_a_constant() -> None:
    """JAX's numbers from a seed that is written in the program."""
    module = loop(inputs=SEED)
    optimized = compile_module(module, 1).module
    opcodes = [x.opcode for x in optimized.all_instructions()]
    assert Opcode.WHILE not in opcodes
    assert Opcode.FUSION not in opcodes
    assert_same(compile_module(module, 1).run(), evaluate(module))


@pytest.mark.parametrize(
    "module",
    [
        pytest.param(loop(end="constant(1000)"), id="too many trips"),
        pytest.param(loop(result="s32[]", end="constant(300)"), id="too many trips of scalars"),
        pytest.param(
            loop(MIXED + "\n  moved = u32[6,2] reverse(hashed), dimensions={0}", following="moved"),
            id="elements change places",
        ),
        pytest.param(
            loop(
                MIXED
                + """
  part = u32[6,1] slice(hashed), slice={[0:6], [0:1]}
  first = u32[6] reshape(part)
  repeated = u32[6,2] broadcast(first), dimensions={0}""",
                following="repeated",
            ),
            id="elements of others are read",
        ),
        pytest.param(
            loop(
                MIXED
                + """
  number = f32[6,2] convert(hashed)
  first = f32[6,2] exponential(number)
  second = f32[6,2] tanh(first)
  third = f32[6,2] sine(second)
  fourth = f32[6,2] cosine(third)
  bent = u32[6,2] convert(fourth)""",
                following="bent",
            ),
            id="too many functions",
        ),
        pytest.param(loop(end="convert(pred[] constant(true))"), id="unknown number of trips"),
    ],
)
def test_other_loops_stay(module: HloModule) -> None:
    before = str(module)
    assert not WhileLoopFusion().run(module)
    assert str(module) == before


def test_loops_of_the_fixture_keep_their_schedule() -> None:
    """The fusion takes the loop's place in the order, and computes the same there."""
    module = parse_module((TESTS / "hlo" / "passes" / "while_loop_fusion.hlo").read_text())
    inputs = random_inputs(module, 1)
    expected = evaluate(clone_module(module), *inputs)
    assert_same(compile_module(module, 1).run(*inputs), expected)
