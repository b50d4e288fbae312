from launch.options import CompileOptions as CompileOptions
from launch.pipeline import partition as partition
from launch.session import compile_program as compile
from launch.session import load_executable as load_executable
from runtime.executable import Executable as Executable
from spmd import testing as testing
from spmd.custom_call import register_custom_call as register_custom_call
from spmd.errors import SpmdError as SpmdError
from spmd.evaluator.evaluator import evaluate as evaluate
from spmd.evaluator.lockstep import evaluate_partitions as evaluate_partitions
from spmd.hlo.module import HloModule as HloModule
from spmd.text.parser import parse_module as parse
from spmd.text.sources.from_jax import from_jax as from_jax
from spmd.text.sources.load import load as load
from spmd.verifier.verifier import verify as verify

__version__: str

__all__ = [
    "CompileOptions",
    "Executable",
    "HloModule",
    "SpmdError",
    "compile",
    "evaluate",
    "evaluate_partitions",
    "from_jax",
    "load",
    "load_executable",
    "parse",
    "partition",
    "register_custom_call",
    "verify",
]
