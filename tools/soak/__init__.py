"""A soak of the loader: workers die and stop, the trainer is interrupted, and nothing is lost."""
