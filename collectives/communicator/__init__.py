"""Communicators: what runs a collective among devices, as threads of one process or as MPI ranks."""
