"""Shardings in, per-device program out: sharding rules, propagation and SPMD partitioning."""
