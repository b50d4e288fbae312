"""Discrete-event simulation of a scheduled module on a described machine of any size: waits for collectives, with their
causes and lengths.
"""
