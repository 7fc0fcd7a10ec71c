# Types of reader._core.results, which is built from cython_ext/reader/_core/results.pyx and offers
# nothing to Python: its functions are called without the GIL. Holds no code.
