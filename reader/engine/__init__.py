"""One Engine: it opens epochs, iterates, saves and loads, counts and closes.

Every face composes it: none of their arguments, texts or tensors are known here. This room may
import errors, places, config, policy, `reader._core`, data, workers and frameworks. It runs in the
trainer; an Engine belongs to the face that made it.
"""
