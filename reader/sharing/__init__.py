"""Large objects of Python once in shared memory: lists, dicts, arrays and tables.

This package runs anywhere, and starts no process or thread. It may import errors, checks, config,
`reader.available_memory` and `reader._core`. What it makes never changes, and belongs to its maker
and to every process that it is passed to; the memory ends with the last of them.
"""
