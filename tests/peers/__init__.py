"""The same work through the loaders of others, side by side.

A peer's loader that leaves a thread or a descriptor behind (paddle.io's does, with workers) runs in
a process of its own here: the ledger makes no exception for anybody.
"""
