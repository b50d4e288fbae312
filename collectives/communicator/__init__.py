"""Communicators: what runs a collective among devices, as threads of one process or as MPI ranks.

What is asked of them: interface, kinds (the definition of each collective), reduction. Threads: loopback, threads.
Ranks: mpi. What native code runs: native_collective, of shared_steps. Over the memory of a node: node, node_memory, and
from the plan down shared_plan, shared_transfers, shared_buffers, shared_window. By messages: algorithms (array_steps,
parcels), made native in message_setup and array_lowering; mpi_messages, mpi_requests. Groups that span nodes, in two
levels: hierarchical, and what begins with that name. Who is late, and why: waiting, polling, status, vigil, processes.
"""
