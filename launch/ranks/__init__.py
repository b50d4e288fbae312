"""Ranks of an MPI job: their start, the agreement on what they run, error reports, and the end of the job."""
