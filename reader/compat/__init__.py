"""Thin faces over the loader for users of other libraries; each maps arguments and promises.

This package may import every package before it.
"""
