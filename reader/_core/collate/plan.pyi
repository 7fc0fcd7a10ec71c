# Types of reader._core.collate.plan; the contract of each field is in plan.pxd. Holds no code.

from typing import final

@final
class SampleLeaf: ...

@final
class Plan: ...
