"""Hundreds of trainers and thousands of remote workers on a virtual clock.

`python -m tools.cluster_sim` runs it. The trainers are the product's: its loader, table of tasks,
dispatcher, supervisor and stage. `pool`, `lander` and `cluster` simulate the machines; `measure`
takes the numbers of that model from a real cluster of Ray.
"""
