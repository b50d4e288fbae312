"""A discrete-event run of a scheduled module on a described machine of any size: who waits for what, and how long."""
