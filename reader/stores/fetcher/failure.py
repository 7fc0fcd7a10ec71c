"""What a store refuses, or cannot give.

Imports nothing.
"""

__all__ = ["Failure"]


class Failure(Exception):
    """What a store refuses, or cannot give.

    Args:
        kind: "missing", "no bucket", "refused", "expired", "no credentials", "certificate",
            "region", "changed", "range", "option", "later" for what is tried again, or "lasting";
            of a lease "held", "waiting", "lost" or "no lease".
        told: what it was, without any secret.
    """

    def __init__(self, kind: str, told: str) -> None:
        super().__init__(told)
        self.kind, self.told = kind, told
