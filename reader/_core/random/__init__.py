"""Random numbers by key: permutations that are computed place by place, and keys of generators."""
