"""The benchmark: this package's loaders beside their peers, or beside an older wheel of its own.

Run as ``python -m tools.bench``. What is measured stands in `works` and `rows`, `contestant` runs
in a process of its own, `runner` gives out the turns, and `report` says what they mean. It owns
what it writes: ``build/bench/``, the chart of the README and the block between its bench marks.
"""
