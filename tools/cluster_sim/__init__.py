"""Hundreds of trainers and thousands of remote workers on a virtual clock.

`python -m tools.cluster_sim` runs it. The trainers are the product's: its loader, schedule, window,
supervisor and stage. What stands in for the machines is in `pool`, `lander` and `cluster`; the
numbers of that model are measured on a real cluster of Ray by `measure`.
"""
