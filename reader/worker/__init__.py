"""What runs in a worker, be it a process, a thread or the loop itself."""
