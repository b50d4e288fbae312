"""Collectives of GPUs through NCCL: the only folder here that imports CuPy."""
