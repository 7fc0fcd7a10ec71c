"""The benchmark: one batch road measured beside other loaders and beside a bare floor.

Run as ``python -m tools.bench``, and ``python -m tools.bench.paddle`` for what only Paddle programs
see. It imports nothing of the package it measures outside the two `loaders.py`, and owns what it
writes: ``build/bench/`` and the chart of the README.
"""
