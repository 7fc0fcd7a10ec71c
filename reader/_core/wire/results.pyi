# Types of reader._core.wire.results: offers nothing to Python: its functions are called without
# the GIL. Holds no code.
