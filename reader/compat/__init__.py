"""Thin faces over the loader for users of other libraries; each maps arguments and promises.

This room may import every room before it.
"""
