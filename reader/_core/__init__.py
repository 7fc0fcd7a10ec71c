"""The compiled core: every module in its rooms is built from cython_ext/reader/_core.

Only these files and the type stubs live here in source; the extension modules are built beside
them. The rooms are floors, the lowest first: interpreter, random, memory, batch, collate, wire,
steps. A module imports errors, config, its own room and those below it.
"""
