"""A discrete-event run of a scheduled module on a described machine of any size: waits, their causes
and their lengths.
"""
