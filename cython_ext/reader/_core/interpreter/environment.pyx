"""The environment of this process, as C has it: what is set there costs no string of Python to ask.

Imports nothing of this package, and keeps no state.
"""
from libc.stdlib cimport getenv


def is_any_set(tuple names not None):
    """Return whether the environment has one of these variables, given as bytes."""
    for name in names:
        if getenv(<bytes>name) is not NULL:
            return True
    return False
