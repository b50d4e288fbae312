"""The reference evaluator."""

from spmd.evaluator.evaluator import evaluate, evaluate_instruction, evaluate_partitions

__all__ = ["evaluate", "evaluate_instruction", "evaluate_partitions"]
