# Types of reader._core.records, which is built from cython_ext/reader/_core/records.pyx; what opens
# records is called from the feeder alone. Holds no code.

class Damaged(Exception): ...
