"""Communicators: they run collectives among devices, as threads of one process, as MPI ranks or as GPUs.

This folder holds what every communicator keeps: `interface`, `group`, `memory` and `reduction`. `kinds` has one file
for each collective: its definition, and how every transport carries it out, in the records of `actions`. Three folders
are transports: `loopback` (threads of one process), `mpi` (ranks), `nccl` (GPUs). Ranks of one node meet in shared
memory (`node`); what is left travels as `messages`; groups that span nodes do both (`hierarchical`). `liveness` tells
which ranks are late, and why.
"""
