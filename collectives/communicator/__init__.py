"""Communicators, which run collectives among devices: threads of one process, MPI ranks or GPUs.

The files of this folder serve several communicators: `interface`, `group`, `wait_context` and `native_collective`.
`kinds` has one file for each collective: its definition, and its actions on every transport, which are records of
`actions`. Three folders are transports: `loopback` (threads of one process), `mpi` (ranks) and `nccl` (GPUs). Ranks of
one node exchange data in shared memory (`node`), other ranks by `messages`, and groups that span nodes in both ways
(`hierarchical`). `liveness` determines which ranks are late, and why.
"""
