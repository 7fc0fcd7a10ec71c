# Types of reader._core.batch.dlpack; other compiled modules make and open capsules with it. Holds
# no code.

class Imported: ...
