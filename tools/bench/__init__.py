"""The benchmark: this package's loaders beside their peers, or beside an older wheel of its own.

Run as ``python -m tools.bench``. What is measured stands in `works` and `rows`, `contestant` runs
in a process of its own, `runner` gives out the turns, and `report` says what they mean. It owns
what it writes: ``build/bench/``, the README's chart, and what lies between the bench marks of
README.md and docs/speed.md.
"""
