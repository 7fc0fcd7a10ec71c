# Types of reader._core.plan, which is built from cython_ext/reader/_core/plan.pyx; the contract of
# each field is in plan.pxd. Holds no code.

from typing import final

@final
class SampleLeaf: ...

@final
class Plan: ...
