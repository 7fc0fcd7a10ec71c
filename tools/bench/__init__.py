"""The benchmark: one batch road measured beside other loaders and beside a bare floor.

Run as ``python -m tools.bench``. It imports nothing of the package it measures outside
`loaders.py`, and owns what it writes: ``build/bench/`` and the chart of the README.
"""
