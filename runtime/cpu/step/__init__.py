"""Execution of a step: thunks as rows of a native table, and the threads that run the rows."""
