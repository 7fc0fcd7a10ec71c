# Types of reader._core.dlpack, which is built from cython_ext/reader/_core/dlpack.pyx; other
# compiled modules make and open capsules with it. Holds no code.

class Imported: ...
