"""Calls with a partition function: what it is asked, and what becomes of its answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import spmd
from spmd.errors import ShardingError
from spmd.hlo import Opcode
from spmd.hlo.host_functions import HostFunctions, LocalFunction, PartitionFunction
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding
from spmd.text.sharding.sharding_text import parse_sharding

#: Rows divided by their sums, of an operand that is divided by columns.
ROW_SUMS = """HloModule rows, num_partitions=4
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
whole {
  a = f32[8,4] parameter(0)
  z = f32[] constant(0)
  s = f32[8] reduce(a, z), dimensions={1}, to_apply=add
  b = f32[8,4] broadcast(s), dimensions={0}
  ROOT d = f32[8,4] divide(a, b)
}
ENTRY main {
  a = f32[8,4] parameter(0), sharding={devices=[1,4]<=[4]}
  c = f32[8,4] custom-call(a), custom_call_target="CustomSPMDPartitioning", called_computations={whole}, frontend_attributes={xla.sdy.sharding_rule="#sdy.op_sharding_rule<([i, j])->([i, j]) {i=8, j=4}, custom>"}, backend_config="0"
  ROOT r = f32[8,4] negate(c), sharding={devices=[1,4]<=[4]}
}
"""
COLUMNS, ROWS = "{devices=[1,4]<=[4]}", "{devices=[4,1]<=[4]}"
#: By columns: the sums of all devices' columns are added up.
BY_COLUMNS = """HloModule local
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
inner {
  t = f32[8] parameter(0)
  ROOT r = f32[8] all-reduce(t), replica_groups={{0,1,2,3}}, channel_id=1, use_global_device_ids=true, to_apply=add
}
ENTRY e {
  a = f32[8,1] parameter(0)
  z = f32[] constant(0)
  s = f32[8] reduce(a, z), dimensions={1}, to_apply=add
  r = f32[8] call(s), to_apply=inner
  b = f32[8,1] broadcast(r), dimensions={0}
  ROOT d = f32[8,1] divide(a, b)
}
"""
BY_ROWS = """HloModule local
add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT s = f32[] add(x, y) }
ENTRY e {
  a = f32[2,4] parameter(0)
  z = f32[] constant(0)
  s = f32[2] reduce(a, z), dimensions={1}, to_apply=add
  b = f32[2,4] broadcast(s), dimensions={0}
  ROOT d = f32[2,4] divide(a, b)
}
"""
ARRAY = np.arange(1, 33, dtype=np.float32).reshape(8, 4)


def with_function(function: PartitionFunction) -> spmd.HloModule:
    module = spmd.parse(ROW_SUMS)
    module.host_functions = HostFunctions(partitioners=(function,))
    return module


def gives(text: str, sharding: str) -> PartitionFunction:
    """A partition function that asks for one sharding of everything."""

    def function(
        _: Sequence[ArrayShape],
        operands: Sequence[HloSharding],
        __: Sequence[ArrayShape],
        results: Sequence[HloSharding],
    ) -> LocalFunction:
        assert [str(one) for one in (*operands, *results)] == [COLUMNS, COLUMNS]
        wanted = (parse_sharding(sharding),)
        return LocalFunction(spmd.parse(text), wanted, wanted)

    return function


@pytest.mark.parametrize(
    ("text", "sharding", "exchange"),
    [(BY_COLUMNS, COLUMNS, Opcode.ALL_REDUCE), (BY_ROWS, ROWS, Opcode.ALL_TO_ALL)],
)
def test_its_module_takes_the_calls_place(text: str, sharding: str, exchange: Opcode) -> None:
    module = with_function(gives(text, sharding))
    found = spmd.partition(module, 4)
    opcodes = {x.opcode for x in found.all_instructions()}
    assert exchange in opcodes
    assert Opcode.CUSTOM_CALL not in opcodes
    (want,) = spmd.evaluate(module, ARRAY)
    (got,) = spmd.compile(module).run(ARRAY)
    assert np.allclose(want, -ARRAY / ARRAY.sum(1, keepdims=True))
    assert np.allclose(got, want)


def test_without_a_function_the_whole_one_is_partitioned() -> None:
    module = spmd.parse(str(with_function(gives(BY_ROWS, ROWS))))
    assert np.allclose(spmd.compile(module).run(ARRAY)[0], spmd.evaluate(module, ARRAY)[0])


def test_an_answer_that_does_not_fit_is_refused() -> None:
    def function(*_: object) -> LocalFunction:
        return LocalFunction(spmd.parse(BY_ROWS), (), ())

    with pytest.raises(ShardingError, match="gives shardings of 0 operands and 0 results"):
        spmd.partition(with_function(function), 4)
