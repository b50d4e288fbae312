"""The communicator of MPI ranks: the only folder that imports mpi4py."""
