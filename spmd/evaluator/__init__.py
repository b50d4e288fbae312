"""Reference evaluator: the definition of HLO, in NumPy.

    evaluator.py     the calls; families.py loads what registers itself
    interpreter.py   runs computations (session.py plans them once), one generator per device
    rendezvous.py    collectives among devices; lockstep.py runs a per-device program that way
    manual.py        shard_map in a program that is not partitioned yet; manual_mesh.py its devices
    <family>.py      one file per op family, functions registered by opcode (registry.py)
    pointwise.py     reducers and comparators on entire arrays; combine.py, windows.py, sort_keys.py serve families
    numerics.py      which type computes; integer.py, conversion.py, special.py what NumPy lacks or does otherwise

It is a definition, not a back end: nothing is fused or done in place, and every other way to run a program is compared
with it.
"""

from spmd.evaluator.evaluator import evaluate, evaluate_instruction, evaluate_partitions

__all__ = ["evaluate", "evaluate_instruction", "evaluate_partitions"]
