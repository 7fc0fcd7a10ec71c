"""`paddle.io.DataLoader`, argument for argument, on the engine.

Imports the engine, paddle and the other modules of this face. The face checks arguments in Paddle's
order, with its exception types and texts, and maps them to the engine's.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import numpy as np
import paddle
from paddle.base import core
from paddle.io.dataloader.dataloader_iter import (  # type: ignore[attr-defined,unused-ignore]
    _DatasetKind,
)

from reader import data
from reader.checks import MIX_HINT, names_arguments
from reader.cluster.ray_backend import Ray
from reader.compat.paddle.collate import PaddleRules, default_convert_fn
from reader.compat.paddle.errors import ArgumentError
from reader.compat.paddle.ragged import RaggedCollate
from reader.compat.paddle.samplers import BatchSampler, RandomSampler
from reader.compat.paddle.source import available_places, current_place
from reader.compat.paddle.switches import pin_limit, use_pinned_memory
from reader.compat.paddle.worker import PaddleWorker
from reader.config import (
    PREFETCH_FACTOR,
    LoaderConfig,
    as_auto,
    as_feed_list,
    elsewhere_of,
    names_of,
    of_backend,
    of_pool,
)
from reader.data import SequenceSampler
from reader.data.iterable import is_iterable_dataset
from reader.engine.engine import Engine
from reader.engine.face import EngineFace
from reader.engine.worker_pool import WorkerPool
from reader.errors import ConfigError, ConfigTypeError, got
from reader.exceptions.exception_codec import add_note
from reader.frameworks.paddle_device import paddle_place
from reader.observe.face import ObservedFace
from reader.orders.one_shot import OneShot
from reader.places import Place, is_paddle_place, parse_places
from reader.policy import BatchPolicy, DispatchPolicy, ErrorPolicy, Policy, WorkerPolicy

__all__ = ["DataLoader"]

if TYPE_CHECKING:
    import typing_extensions
    from paddle import Tensor
    from paddle._typing import PlaceLike
    from paddle.io import Dataset
    from paddle.io.reader import _CollateFn

    # Paddle's class takes no type: its programs name ours without one, too
    T_co = typing_extensions.TypeVar("T_co", covariant=True, default=Any)
else:
    T_co = TypeVar("T_co", covariant=True)

_POLICY = Policy(
    dispatch=DispatchPolicy(is_round_robin=True, works_ahead=True),
    worker=WorkerPolicy(rules=PaddleRules(), fetches_many=False, make_prepare=PaddleWorker.draw),
    batch=BatchPolicy(has_plain_containers=True, reads_bfloat16=True),
    error_policy=ErrorPolicy(error_text="DataLoader worker({worker}) caught {type} with message:"),
)

_OWN = "it is an argument of reader.DataLoader; use that with framework='paddle'"
# arguments of other loaders, and what to do here
_ELSEWHERE = {
    **elsewhere_of("paddle", _OWN),
    "sampler": "pass batch_sampler=BatchSampler(sampler=..., batch_size=...)",
    "pin_memory": "Paddle chooses by itself; see use_pinned_memory",
    "generator": "call paddle.seed and numpy.random.seed, or pass a batch_sampler",
    "multiprocessing_context": "workers start by the default method; see"
    " multiprocessing.set_start_method",
    "device": "pass places=",
    "place": "pass places=",
}

# Programs, and paddle itself, ask isinstance(loader, paddle.io.DataLoader).
if TYPE_CHECKING:  # attributes have the types that Paddle gives them

    class _Base(paddle.io.DataLoader, EngineFace, ObservedFace):  # type: ignore[misc, unused-ignore]
        pass
else:

    class _Base(EngineFace, ObservedFace, paddle.io.DataLoader):
        pass


class DataLoader(_Base, Generic[T_co]):
    """Feed a paddle program from a dataset: `paddle.io.DataLoader` 3.3 with another engine.

    Arguments, defaults, orders, lengths and what is yielded are Paddle's; see docs/paddle.md, line
    by line. In dynamic mode the leaves of a batch are paddle.Tensors, in static mode DenseTensors.

    Args:
        num_workers, prefetch_factor: as Paddle's, or "auto": as many as pay off, found while
            training; `loader.chosen` says what there is, and the attributes the most there may be.
            The least busy worker then makes each batch, and its random state decides augmentation.
        drop_last_group: with several places, what happens to a last group of batches that is short.
            None drops it, as Paddle does, with a UserWarning; True drops it; False delivers it.
        prefetch_next_epoch: with persistent workers, begin the next epoch when the last batch of
            one is delivered.
        pool: a `reader.WorkerPool`, whose workers several loaders share, in the place of
            `num_workers`; they persist between epochs.
        backend: a `reader.Ray`: the workers are on the machines of a cluster, and persist between
            epochs. See docs/cluster.md.

    Raises:
        AssertionError, ValueError, TypeError: as Paddle, with the value and a remedy; all of them
            are `reader.ConfigError`.

    While iterating: the exceptions of the dataset as they were raised; see `reader.DataLoader`.
    """

    @names_arguments(_ELSEWHERE)
    def __init__(  # noqa: PLR0915
        self,
        dataset: Dataset[T_co] | data.Dataset[T_co] | data.IterableDataset[T_co],
        feed_list: Sequence[Tensor] | None = None,
        places: PlaceLike | Sequence[PlaceLike] | None = None,
        return_list: bool = True,
        batch_sampler: paddle.io.BatchSampler | data.BatchSampler[Any] | None = None,
        batch_size: int = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: _CollateFn | None = None,
        num_workers: int | Literal["auto"] = 0,
        use_buffer_reader: bool = True,
        reader_buffer_size: int = 2,
        prefetch_factor: int | Literal["auto"] = PREFETCH_FACTOR,
        use_shared_memory: bool = True,
        timeout: int = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        persistent_workers: bool = False,
        *,
        drop_last_group: bool | None = None,
        prefetch_next_epoch: bool = False,
        pool: WorkerPool | None = None,
        backend: Ray | None = None,
    ) -> None:
        arguments = {name: value for name, value in locals().items() if name in _ARGUMENTS}
        num_workers, persistent_workers = of_pool(pool, num_workers, persistent_workers)
        persistent_workers = of_backend(backend, num_workers, persistent_workers)
        # Paddle takes more than its types say: the checks below decide
        samples: Any = dataset
        size: Any = batch_size
        batches: Any = batch_sampler
        workers: Any = as_auto("num_workers", num_workers, backend)
        factor: Any = as_auto("prefetch_factor", prefetch_factor)
        if not return_list and not paddle.in_dynamic_mode() and feed_list is None:
            raise ArgumentError(
                "feed_list should be set when return_list=False. Pass the variables of the program,"
                " or return_list=True"
            )
        _check_feed_list(feed_list)
        _check_tokens(dataset)
        parsed = _parse_places(places)
        _check_number("num_workers", workers, 0, "num_workers should be a non-negative value")
        _check_number("prefetch_factor", factor, 1, "prefetch_factor should be a positive value")
        if isinstance(timeout, (int, float)) and timeout < 0:
            raise ArgumentError(f"timeout should be a non-negative value, got {got(timeout)}")
        is_iterable = is_iterable_dataset(dataset)
        if is_iterable and shuffle:
            error = ConfigError(f"IterableDataset not support shuffle, but got shuffle={shuffle}")
            add_note(error, MIX_HINT)
            raise error
        if is_iterable and batch_sampler is not None:
            raise ConfigError("IterableDataset expect unspecified batch_sampler")
        given = batch_sampler is not None
        if given and (batch_size != 1 or shuffle or drop_last):
            raise ArgumentError(
                "batch_size/shuffle/drop_last should not be set when batch_sampler is given, got"
                f" batch_size={batch_size!r}, shuffle={shuffle!r}, drop_last={drop_last!r}"
            )
        if size is not None and not given:
            _check_batch_size(size)
            if not is_iterable:
                batches = BatchSampler(
                    dataset=samples, batch_size=size, shuffle=shuffle, drop_last=drop_last
                )
        if given and isinstance(batches, Iterator):
            arguments["batch_sampler"] = batches = OneShot("batch_sampler", batches)
        is_static = not paddle.in_dynamic_mode()
        make_batch: Any = collate_fn
        if collate_fn is None and size is None:
            make_batch = default_convert_fn
        elif collate_fn is None and is_static:
            make_batch = RaggedCollate.of(feed_list)
        config = LoaderConfig.build(
            dataset,
            is_iterable=is_iterable,
            feed_list=feed_list if is_static else None,
            places=parsed,
            pin_limit=pin_limit(),
            return_list=return_list if is_static else True,
            batch_sampler=batches,
            batch_size=None if size is None else size if is_iterable else 1,
            drop_last=drop_last if is_iterable and size is not None else False,
            collate_fn=make_batch,
            num_workers=workers,
            use_buffer_reader=use_buffer_reader,
            reader_buffer_size=reader_buffer_size,
            prefetch_factor=factor,
            use_shared_memory=use_shared_memory,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            persistent_workers=persistent_workers,
            framework="paddle",
            # Paddle ignores shuffle without batching
            sampler=RandomSampler(samples) if shuffle and size is None else None,
            **{name: arguments[name] for name in names_of("paddle")},
        )
        sampler = config.sampler
        if sampler is None and config.batch_sampler is None and not is_iterable:
            sampler = SequenceSampler(samples)
        self._engine = Engine(config, _POLICY, sampler, config.batch_sampler)
        # attributes that programs read
        self.config = config
        self.dataset = samples
        self.num_workers = workers if config.auto[0] else config.num_workers
        self.batch_size = None if given else size
        self.drop_last = drop_last
        self.auto_collate_batch = size is not None
        kind: Any = _DatasetKind
        self.dataset_kind = kind.ITER if is_iterable else kind.MAP
        self.return_list = return_list
        self.feed_list = feed_list
        self.collate_fn = collate_fn
        self.use_buffer_reader = use_buffer_reader
        self.reader_buffer_size = reader_buffer_size
        self.prefetch_factor = factor
        self.use_shared_memory = bool(use_shared_memory) and config.num_workers > 0
        self.timeout = timeout
        self.worker_init_fn = worker_init_fn
        self._persistent_workers = persistent_workers
        self.pool = pool
        self.backend = backend
        self.pin_memory = not is_static and use_pinned_memory() is not False
        self._arguments = arguments  # from now on setting an attribute changes the loader

    def __setattr__(self, name: str, value: Any) -> None:
        argument = "persistent_workers" if name == "_persistent_workers" else name
        if argument in _ARGUMENTS and "_arguments" in self.__dict__:
            self._change(argument, value)
        else:
            object.__setattr__(self, name, value)

    def _change(self, argument: str, value: Any) -> None:
        """Use another value of an argument from the next epoch on; a running one keeps the old."""
        changed = {**self._arguments, argument: value}
        if argument == "batch_sampler":
            changed.update(batch_size=1, shuffle=False, drop_last=False)
        elif argument in _OF_BATCHES and self._arguments["batch_sampler"] is None:
            # of the batch sampler, whose attributes a program may have set
            its = self.batch_sampler
            found = {name: getattr(its, name, changed[name]) for name in _OF_BATCHES}
            changed.update({**found, argument: value})
        # no object of a subclass: its `__del__` would close what this loader still uses
        made: DataLoader[Any] = DataLoader(**changed)
        batch_sampler = self.batch_sampler
        made._take_over(self._engine)
        # as in Paddle, another dataset is read in the order of the same batch sampler
        keeps_order = made.config.is_iterable == self.config.is_iterable
        self.__dict__.update(vars(made))
        if keeps_order and argument not in (*_OF_BATCHES, "batch_sampler"):
            self._engine.use(batch_sampler=batch_sampler)

    def __repr__(self) -> str:
        return (
            f"DataLoader({type(self.dataset).__name__}, batch_size={self.batch_size},"
            f" num_workers={self.num_workers}, framework={self.config.framework!r})"
        )

    if not TYPE_CHECKING:  # an attribute of Paddle's, which may be set

        @property
        def places(self):
            """Where batches land, as `core.Place`s."""
            return [_paddle_place(place) for place in self.config.places]

    def __len__(self) -> int:
        """The number of batches in an epoch, not divided by the number of places: see `steps`."""
        if self.config.is_iterable:
            raise ConfigTypeError(
                "length of IterableDataset not supported: it yields until it ends. Count while"
                " iterating."
            )
        return super().__len__()

    @staticmethod
    def from_generator(
        feed_list: Any = None,
        capacity: int | None = None,
        use_double_buffer: bool = True,
        iterable: bool = True,
        return_list: bool = False,
        use_multiprocess: bool = False,
        drop_last: bool = True,
    ) -> Any:
        """Make a loader of Python generators: see `reader.compat.paddle.generator`."""
        from reader.compat.paddle.generator import from_generator

        return from_generator(
            feed_list,
            capacity,
            use_double_buffer,
            iterable,
            return_list,
            use_multiprocess,
            drop_last,
        )

    @staticmethod
    def from_dataset(dataset: Any, places: Any, drop_last: bool = True) -> Any:
        """Make a loader of a QueueDataset or InMemoryDataset: see `dataset_loader.py`."""
        from reader.compat.paddle.dataset_loader import from_dataset

        return from_dataset(dataset, places, drop_last)


_OF_BATCHES = ("batch_size", "shuffle", "drop_last")
# arguments, which are also attributes that a program may set later
_ARGUMENTS = frozenset(inspect.signature(DataLoader.__init__).parameters) - {"self"}


def _check_feed_list(feed_list: Any) -> None:
    """Refuse, early, datasets that Paddle refuses while iterating."""
    if feed_list is None or (isinstance(feed_list, Iterable) and not isinstance(feed_list, str)):
        items: Any = feed_list if isinstance(feed_list, (list, tuple)) else ()
        if all(isinstance(item, str) or hasattr(item, "name") for item in items):
            return
    as_feed_list(feed_list, "paddle", True)


def _check_tokens(dataset: Any) -> None:
    """Refuse tokens that Paddle would read as fractions."""
    if isinstance(dataset, data.TokenWindows) and dataset.given_dtype == np.uint16:
        raise ConfigError(
            "the tokens come as uint16, which Paddle reads as bfloat16, got"
            f" {got(dataset)}. Pass TokenWindows(..., as_dtype='int64'), or 'int32'"
        )


def _check_number(name: str, value: Any, low: int, text: str) -> None:
    """Refuse too small an int as Paddle does; the engine checks values of other types."""
    if isinstance(value, int) and value < low:
        raise ArgumentError(f"{text}, got {name}={value}")


_SUPPORTED = (
    "Paddle supports CPUPlace, CUDAPlace, CUDAPinnedPlace, XPUPlace, XPUPinnedPlace, IPUPlace and"
    " CustomPlace"
)


def _parse_places(places: Any) -> tuple[Place, ...]:
    """Check places as Paddle does, with its texts. None: Paddle's current place."""
    if places is None:
        now = current_place()
        places = "cpu" if "undefined" in str(now) else now  # in static mode there may be none
    for place in places if isinstance(places, (list, tuple)) else (places,):
        if not isinstance(place, str) and not is_paddle_place(place):
            raise ConfigError(
                f"place only support string which is 'Place' and so on, but got {place}"
            )
    kinds = ("cpu", "gpu", "gpu_pinned", *core.get_all_custom_device_type())
    for place in places if isinstance(places, (list, tuple)) else (places,):
        try:
            parsed = parse_places(place)
        except ConfigError as error:
            raise type(error)(f"{_SUPPORTED}, but received {place}. {error}") from None
        if parsed[0].kind not in kinds:
            raise ConfigError(
                f"{_SUPPORTED}, but received {place}. The kinds of places here: {', '.join(kinds)}"
            )
        available_places(place)  # each before they are compared: as Paddle does
    return parse_places(places)


def _check_batch_size(batch_size: Any) -> None:
    if not isinstance(batch_size, numbers.Real):
        raise ConfigTypeError(f"batch_size should be an int or None, got {got(batch_size)}")
    if isinstance(batch_size, numbers.Real) and batch_size <= 0:
        raise ArgumentError(
            "batch_size should be None or a positive value when batch_sampler is not given, got"
            f" {got(batch_size)}"
        )


def _paddle_place(place: Place) -> Any:
    """Return the place as a `core.Place`, of which programs call `is_cpu_place()` and the like."""
    made = core.Place()
    made.set_place(paddle_place(place))
    return made
