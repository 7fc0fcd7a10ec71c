"""The compiled core: every module in this package is built from cython_ext/reader/_core.

Only this file and the type stubs live here in source; the extension modules are built beside
them. A module of the core imports errors, config and its own room, and is imported by name
(``from reader._core import arena``), so that this file loads none of them.
"""
