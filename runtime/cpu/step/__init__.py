"""Execution of a step: thunks as the rows of a table that native code runs, and the threads that run the tables."""
