"""The code that runs in a worker: a process, a thread, or the loop itself."""
