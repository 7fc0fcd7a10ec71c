"""An extra of the distribution: its floors, and the tests that hold what it promises.

Imports pyproject. `EXTRAS` says for each one which tests are its own; the floors are those of
pyproject.toml and stand nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass

from tools.pyproject import Floor, dependencies, extras

__all__ = ["CORE", "EXTRAS", "Extra"]

CORE = "core"  # no extra: every user gets it
OLDEST_PYTHON = "3.11"  # under which there are wheels of every oldest version, but for NumPy's


@dataclass(frozen=True)
class Extra:
    """One extra, and how it is tried.

    Attributes:
        name: as in pyproject.toml; `CORE` for the dependencies of all.
        imports: what its packages are imported as: tests that ask for them are never skipped.
        tests: arguments of pytest: files, and what is chosen of them.
        beside: requirements of the tests alone.
        beside_oldest: those of the tests beside the oldest versions; a NumPy of their time.
        beside_newest: those of the tests that only the newest versions run.
        has_warnings: the newest version warns, too.
        python: the Python that the oldest versions run under.
        gigabytes: about how much is downloaded.
    """

    name: str
    imports: tuple[str, ...]
    tests: tuple[str, ...]
    beside: tuple[str, ...] = ()
    beside_oldest: tuple[str, ...] = ("numpy<2",)
    beside_newest: tuple[str, ...] = ()
    has_warnings: bool = False
    python: str = OLDEST_PYTHON
    gigabytes: float = 0.2

    @property
    def floors(self) -> list[Floor]:
        """The oldest versions that are admitted."""
        return dependencies() if self.name == CORE else extras()[self.name]


def _contract(names: str) -> tuple[str, ...]:
    return tuple(f"tests/contract/test_{name}.py" for name in names.split())


_OF_TORCH = _contract(
    "arrays_torch bad_input cache equal_integers invariant_02_ownership invariant_06_pure_batches "
    "invariant_07_trainer_left_alone iterable iterable_edges lod_tensor mixing next_epoch out "
    "places private_memory reseed samples shards share shared_batches state state_damaged "
    "state_samplers thread_workers without_workers"
)
_OF_PADDLE = _contract(
    "arrays_paddle bad_input feeding_loader generator_loader invariant_02_ownership "
    "invariant_06_pure_batches iterable iterable_edges lod_tensor mixing next_epoch places "
    "private_memory samples static_feed without_workers"
)
# 2.6.2 is what the common index has: see make old-paddle
_OF_PADDLE_26 = _contract("static_feed generator_loader feeding_loader samples")
_NOT_OF_PADDLE_26 = (
    "not pir_mode and not e8m0fnu and not e4m3fn-float32 and not sources_are_checked"
)

EXTRAS = (
    Extra(
        CORE,
        (),
        ("--importing", "none", "tests/contract"),
        beside_oldest=(),
        python="3.10",  # NumPy 1.23.0 has no wheels for a later one
    ),
    Extra("paddle", ("paddle",), _OF_PADDLE, gigabytes=0.3),
    Extra(
        "paddle-gpu",
        ("paddle",),
        (*_OF_PADDLE_26, "-k", _NOT_OF_PADDLE_26),
        beside_newest=("numpy<2",),  # 2.6.2 admits another and cannot be imported with it
        has_warnings=True,  # where there is no GPU
        gigabytes=0.8,
    ),
    Extra(
        "torch",
        ("torch",),
        (
            *_OF_TORCH,
            "tests/fault/test_torch_resume.py",
            "tests/fault/test_failed_samples_ranks.py",
            "tests/unit/test_exchange.py",
        ),
        beside=("torchdata",),
        gigabytes=3,
    ),
    Extra(
        "jax",
        ("jax",),
        (*_contract("jax jax_device"), "tests/device/test_jax_device.py"),
    ),
    Extra("cuda", ("cuda",), ("tests/device/test_registration.py",)),
    Extra(
        "images",
        ("PIL", "simplejpeg"),
        (
            *_contract("image_folder cache"),
            "tests/fault/test_pixels.py",
            *(
                f"tests/unit/test_{name}.py"
                for name in "images transforms read_ahead gluon_images gluon_recordio".split()
            ),
        ),
    ),
    Extra(
        "tables",
        ("pyarrow",),
        (
            *_contract("table_rows"),
            *(f"tests/unit/test_{name}.py" for name in ("table_rows", "fixed_table", "share")),
        ),
    ),
    Extra(
        "shards",
        ("google_crc32c", "pyarrow"),
        (
            *_contract("shard_loading shards_command"),
            *(
                f"tests/unit/test_{name}.py"
                for name in ("shard_formats", "shard_sets", "write_shards")
            ),
        ),
    ),
    Extra("remote", ("obstore",), ("tests/stores",)),
    Extra(
        "ray",
        ("ray",),
        ("-n", "0", "tests/cluster"),  # one cluster for all of them
        beside=("scikit-learn",),
        beside_newest=("ray[train]",),
    ),
    Extra(
        "profile",
        ("matplotlib", "rich"),
        (*_contract("profile_views profile_program"), "tests/integrations/test_progress.py"),
        beside=("tqdm",),
    ),
)
