# Types of reader._core.wire.records; what opens records is called from the feeder alone. Holds no
# code.

class Damaged(Exception): ...
