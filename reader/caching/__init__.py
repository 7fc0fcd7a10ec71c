"""What a deterministic part of samples gave, kept in memory that processes share and on disk.

This package runs anywhere, in the trainer and in workers, and starts no process or thread. It may
import what workers may. A cache belongs to every process that uses it, and ends with the last.
"""
