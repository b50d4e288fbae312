"""MPI jobs that something happens to: what is done to them (harm), the job itself (job), what became of it (report)."""
