"""Keep the deterministic part of samples in memory that processes share, and on disk.

This package runs anywhere, in the trainer and in workers, and starts no process or thread. It may
import the rooms that workers may. A cache belongs to every process that uses it, and ends with the
last one.
"""
