"""Communicators: what runs a collective among devices, as threads of one process or as MPI ranks.

What is asked of them: interface, kinds (the definition of each collective), reduction. Threads: loopback, threads.
Ranks: mpi; by messages: mpi_messages, algorithms; over the memory of a node: node, node_memory, and from the plan down
shared_plan, shared_transfers, shared_steps, shared_buffers, native_collective, staged_collective, shared_window. Groups
that span nodes, in two levels: hierarchical, and what begins with that name. Who is late, and why: waiting, polling,
status, vigil, processes.
"""
