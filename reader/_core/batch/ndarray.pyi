# Types of reader._core.batch.ndarray, which offers nothing to Python. Holds no code.
