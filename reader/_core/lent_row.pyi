# Types of reader._core.lent_row, which is built from cython_ext/reader/_core/lent_row.pyx; the
# contract of each field is in lent_row.pxd. Holds no code.

from typing import final

@final
class LentRow: ...
