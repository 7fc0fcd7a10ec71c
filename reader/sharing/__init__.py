"""Large Python objects in shared memory: lists, dicts, arrays and tables.

This package runs anywhere, and starts no process or thread. It may import errors, checks, config,
`reader.available_memory` and `reader._core`. Shared objects are immutable, and belong to their
maker and every process that they are passed to; the memory ends with the last of them.
"""
