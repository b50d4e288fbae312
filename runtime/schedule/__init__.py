"""Scheduling: choice of the order in which the instructions of each computation run, and rematerialization."""
