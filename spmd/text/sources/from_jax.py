"""Functions of JAX become modules, with the Python functions that they call (the ``jax`` extra).

Python callbacks (jax.debug.print, jax.pure_callback, io_callback) and the partition functions of
jax.custom_partitioning exist in this process only; the module refers to them (spmd/hlo/host_functions.py). A call of
custom_partitioning also gets the unpartitioned function as its called computation, so that a text of the module can be
partitioned and evaluated anywhere.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Protocol

from spmd.errors import SpmdError
from spmd.hlo.clone import clone_computation
from spmd.hlo.computation import HloComputation
from spmd.hlo.host_functions import HostFunctions, LocalFunction
from spmd.hlo.instruction import HloInstruction
from spmd.hlo.module import HloModule
from spmd.lazy_dataclass import dataclass
from spmd.ops.custom_call import CUSTOM_PARTITIONING, custom_call_target
from spmd.proto.reader import parse_proto
from spmd.shape import ArrayShape
from spmd.sharding import HloSharding
from spmd.text.sharding.sharding_text import parse_sharding
from spmd.text.sources.stablehlo import parse_stablehlo


class Lowerable(Protocol):
    """The part of what ``jax.jit`` returns that is used here."""

    def lower(self, *args: Any, **kwargs: Any) -> Any: ...


def from_jax(function: Lowerable, *args: Any, **kwargs: Any) -> HloModule:
    """Return the module that ``function`` (from ``jax.jit``) lowers to for these arguments, before optimization.

    Arguments may be arrays or ``jax.ShapeDtypeStruct``. The module refers to the Python functions that the program
    calls and to the partition functions of ``custom_partitioning``, so it must be compiled in this process. Raises
    SpmdError if ``function`` cannot be lowered.
    """
    if not hasattr(function, "lower"):
        raise SpmdError(f"expected a function from jax.jit, found {type(function).__name__}")
    traced = function.trace(*args, **kwargs) if hasattr(function, "trace") else None
    lowered = function.lower(*args, **kwargs) if traced is None else traced.lower()
    computation = lowered.compiler_ir(dialect="hlo")
    module = parse_proto(computation.as_serialized_hlo_module_proto(), "<jax>")
    compile_args = getattr(getattr(lowered, "_lowering", None), "compile_args", {})
    callbacks = tuple(compile_args.get("host_callbacks") or ())
    module.host_functions = HostFunctions(callbacks)
    calls = _partitioned_calls(module)
    if calls and traced is not None:
        _keep_partitioners(module, calls, compile_args.get("keepalive") or (), traced.jaxpr)
    return module


def _partitioned_calls(module: HloModule) -> list[HloInstruction]:
    return [x for x in module.all_instructions() if custom_call_target(x) == CUSTOM_PARTITIONING]


@dataclass(frozen=True)
class JaxPartitioner:
    """A partition function of custom_partitioning (a PartitionFunction). ``key``: JAX's name of it.

    ``info``: JAX's object of that name, which JAX refers to weakly.
    """

    key: str
    info: Any

    def __call__(
        self,
        operand_shapes: Sequence[ArrayShape],
        operands: Sequence[HloSharding],
        result_shapes: Sequence[ArrayShape],
        results: Sequence[HloSharding],
    ) -> LocalFunction:
        jax = importlib.import_module("jax._src.custom_partitioning")
        xla = importlib.import_module("jax._src.lib").xla_client
        shape, sharding = _joined(xla, result_shapes, results)
        code, given, result = jax._custom_partitioning_partition(
            [_jax_shape(xla, s) for s in operand_shapes],
            [xla.HloSharding.from_string(str(s)) for s in operands],
            shape,
            sharding,
            self.key.encode(),
        )
        parts = result.tuple_elements() if len(results) != 1 else [result]
        return LocalFunction(
            parse_stablehlo(code, "<custom_partitioning>"),
            tuple(parse_sharding(str(one)) for one in given),
            tuple(parse_sharding(str(one)) for one in parts),
        )


def _joined(xla: Any, shapes: Sequence[ArrayShape], shardings: Sequence[HloSharding]) -> Any:
    """Return the shape and the sharding of one result, or of a tuple of several."""
    listed = [_jax_shape(xla, s) for s in shapes]
    parts = [xla.HloSharding.from_string(str(s)) for s in shardings]
    if len(listed) == 1:
        return listed[0], parts[0]
    shape = xla.Shape.tuple_shape(listed)
    return shape, xla.HloSharding.tuple_sharding(shape, parts)


def _jax_shape(xla: Any, shape: ArrayShape) -> Any:
    return xla.Shape.array_shape(shape.element_type.numpy, shape.dims)


def _keep_partitioners(
    module: HloModule, calls: Sequence[HloInstruction], infos: Sequence[Any], jaxpr: Any
) -> None:
    """Number the partition functions of ``calls``, and give each call its unpartitioned function."""
    by_key = {str(id(info)): info for info in infos}
    equations = list(_equations(jaxpr.jaxpr))
    partitioners: list[JaxPartitioner] = []
    functions: dict[str, HloComputation] = {}
    for call in calls:
        key = call.annotations.backend_config.strip('"')
        info = by_key.get(key)
        if info is None:
            continue
        equation = next((e for e in equations if _is_of(e, info, call)), None)
        if equation is None:
            continue
        if key not in functions:
            functions[key] = _unpartitioned_function(module, equation.params["call"], info.mesh)
            partitioners.append(JaxPartitioner(key, info))
        number = [one.key for one in partitioners].index(key)
        call.annotations = replace(call.annotations, backend_config=str(number))
        call.called_computations = [functions[key]]
    module.computations = module.computations_post_order()
    module.host_functions = replace(module.host_functions, partitioners=tuple(partitioners))


def _equations(jaxpr: Any) -> Iterator[Any]:
    """Yield the equations of custom_partitioning, those of inner functions too."""
    core = importlib.import_module("jax._src.core")
    for equation in jaxpr.eqns:
        if equation.primitive.name == "custom_partitioning":
            yield equation
        for inner in core.jaxprs_in_params(equation.params):
            yield from _equations(inner)


def _is_of(equation: Any, info: Any, call: HloInstruction) -> bool:
    """Return whether an equation has become ``call``, or one that computes the same."""
    own = equation.params
    shapes = [tuple(v.aval.shape) for v in equation.invars]
    return (
        own["partition"] is info.partition
        and own["static_args"] == info.static_args
        and own["in_tree"] == info.in_tree
        and shapes == [operand.array_shape.dims for operand in call.operands]
    )


def _unpartitioned_function(module: HloModule, closed: Any, mesh: Any) -> HloComputation:
    """Return the function of an equation, on global arrays, as a computation of ``module``."""
    jax = importlib.import_module("jax")
    core = importlib.import_module("jax._src.core")
    avals = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in closed.in_avals]

    def flat(*arrays: Any) -> Any:
        results = core.jaxpr_as_fun(closed)(*arrays)
        return results[0] if len(results) == 1 else tuple(results)

    with _mesh_of(closed, mesh):
        lowered = jax.jit(flat, keep_unused=True).lower(*avals)
    data = lowered.compiler_ir(dialect="hlo").as_serialized_hlo_module_proto()
    source = parse_proto(data, "<custom_partitioning>")
    copies: dict[HloComputation, HloComputation] = {}
    for computation in source.computations_post_order():
        copies[computation] = clone_computation(computation, module, copies.__getitem__)
    return copies[source.entry]


def _mesh_of(closed: Any, mesh: Any) -> AbstractContextManager[Any]:
    """Return the context in which a function is lowered whose types name axes of ``mesh``; nothing for any other."""
    jax = importlib.import_module("jax")
    meshes = [aval.sharding.mesh for aval in closed.in_avals if hasattr(aval, "sharding")]
    named = next((one for one in meshes if not one.empty), None)
    if named is None:
        return nullcontext()
    types = named.axis_types
    context: AbstractContextManager[Any] = jax.set_mesh(
        jax.sharding.Mesh(mesh.devices, mesh.axis_names, axis_types=types)
    )
    return context
