# Types of reader._core.collate.lent_row; the contract of each field is in lent_row.pxd. Holds no
# code.

from typing import final

@final
class LentRow: ...
