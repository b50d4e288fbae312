"""The ranks of a job: how they start, agree, report errors and end."""
