"""Scheduling: chooses the order in which each computation's instructions run."""
