"""The Gluon face beside MXNet itself, in one program: every batch equal, and every refusal.

Runs where mxnet is installed: `make gluon` makes that environment, for MXNet 1.9.1 needs a NumPy
older than ours.
"""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader.compat import gluon as ours
from reader.data.columns import columns_of
from tests.datasets import Fails
from tests.peers import impure_datasets

mx = pytest.importorskip("mxnet")
theirs = mx.gluon.data

pytestmark = [pytest.mark.peer, pytest.mark.filterwarnings("ignore")]


def told(value: Any) -> Any:
    """Return a value with the types, element types and bytes of all that is in it."""
    if isinstance(value, mx.nd.NDArray):
        context = str(value.context).replace("cpu_shared", "cpu")  # ours are plain: no file each
        return ("nd", str(np.dtype(value.dtype)), value.shape, context, value.asnumpy().tolist())
    if isinstance(value, np.ndarray):
        return ("np", str(value.dtype), value.tolist())
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [told(each) for each in value])
    if isinstance(value, dict):
        return ("dict", {key: told(each) for key, each in value.items()})
    return (type(value).__name__, repr(value))


def both(run: Any) -> Any:
    """Return the result of a function with our package, after checking that theirs is equal."""
    found = []
    for package in (ours, theirs):
        np.random.seed(7)
        random.seed(7)
        mx.random.seed(7)
        try:
            found.append(run(package))
        except Exception as error:
            found.append((error, str(error)))
    mine, its = found
    if isinstance(its, tuple) and isinstance(its[0], Exception):
        assert isinstance(mine[0], type(its[0])), (mine, its)
        assert its[1] in mine[1]
        return mine[0]
    assert mine == its
    return mine


def epochs(loader: Any, count: int = 3) -> list[Any]:
    found = []
    for _ in range(count):
        found.append(len(loader))
        found += [told(batch) for batch in loader]
    return found


DATA: dict[str, Any] = {
    "numbers": list(range(10)),
    "floats": [i / 4 for i in range(10)],
    "array": np.arange(40, dtype="f4").reshape(10, 2, 2),
    "bytes": np.arange(40, dtype="u1").reshape(10, 4),
    "halves": np.ones((10, 3), "f2"),
    "bools": np.arange(20).reshape(10, 2) % 3 == 0,
    "nd": mx.nd.arange(30).reshape((10, 3)),
    "nd samples": [mx.nd.full((2, 2), i) for i in range(10)],
    "nd integers": [mx.nd.full((2,), i, dtype="int32") for i in range(10)],
    "pairs": [(np.full(3, i, "f4"), i) for i in range(10)],
    "nested": [((np.full(2, i), mx.nd.full((1,), i)), i, float(i)) for i in range(10)],
    "lists": [[i, i + 1] for i in range(10)],
    "lists in tuples": [([i, i + 1], np.float32(i)) for i in range(10)],
    "mixed numbers": [1, 2.5, 3, True, 5, 6, 7.5, 8, 9, 10],
}
WORKERS: dict[str, dict[str, Any]] = {
    "none": {},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "thread_pool": True},
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("data", DATA)
def test_batches_are_equal(data: str, workers: str) -> None:
    both(lambda at: epochs(at.DataLoader(DATA[data], 4, **WORKERS[workers]), 1))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("data", [("nd",), ("nd", "array"), ("array", "halves", "nd")])
def test_rows_of_arrays_are_gathered_and_equal(data: tuple[str, ...], workers: str) -> None:
    def run(at: Any) -> Any:
        dataset = at.ArrayDataset(*(DATA[name] for name in data))
        assert columns_of(dataset) is not None
        return epochs(at.DataLoader(dataset, 4, **WORKERS[workers]), 1)

    both(run)
    both(lambda _: epochs(ours.DataLoader(theirs.ArrayDataset(DATA[data[0]]), 4), 1))


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("last_batch", [None, "keep", "discard", "rollover"])
@pytest.mark.parametrize("shuffle", [False, True])
def test_orders_and_last_batches_are_equal(
    workers: str, last_batch: str | None, shuffle: bool
) -> None:
    for count, size in itertools.product((1, 3, 10), (1, 3, 4, 11)):
        both(
            lambda at, count=count, size=size: epochs(
                at.DataLoader(
                    list(range(count)), size, shuffle, None, last_batch, **WORKERS[workers]
                ),
                4,
            )
        )


@pytest.mark.parametrize("workers", WORKERS)
def test_samplers_serve_both(workers: str) -> None:
    data = list(range(12))
    for make in (
        lambda at: {"sampler": at.RandomSampler(12), "batch_size": 5},
        lambda at: {"sampler": at.SequentialSampler(7), "batch_size": 5},
        lambda at: {"sampler": at.SequentialSampler(4, 3), "batch_size": 3},
        lambda at: {"sampler": at.FilterSampler(lambda x: x % 2, data), "batch_size": 4},
        lambda at: {
            "batch_sampler": at.BatchSampler(at.SequentialSampler(11), 3, "rollover"),
        },
        lambda at: {"batch_sampler": [[0, 1], [5], [2, 3, 4]]},
        lambda at: {"sampler": [3, 1, 2], "batch_size": 2, "last_batch": "discard"},
    ):
        both(lambda at, make=make: epochs(at.DataLoader(data, **make(at), **WORKERS[workers])))


def scaled(x: Any) -> Any:
    return x * 2


def scaled_pair(x: Any, y: Any) -> Any:
    return x * 2, y + 1


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("lazy", [False, True])
def test_transforms_are_equal(workers: str, lazy: bool) -> None:
    def run(at: Any) -> Any:
        array = np.arange(20, dtype="f4").reshape(10, 2)
        one = at.ArrayDataset(array).transform(scaled, lazy)
        two = at.ArrayDataset(array, np.arange(10)).transform(scaled_pair, lazy)
        first = at.ArrayDataset(array, list(range(10))).transform_first(scaled, lazy)
        return [epochs(at.DataLoader(each, 3, **WORKERS[workers]), 1) for each in (one, two, first)]

    both(run)


def listed(dataset: Any) -> list[Any]:
    return [told(dataset[index]) for index in range(len(dataset))]


def test_datasets_are_equal() -> None:
    for run in (
        lambda at: listed(at.SimpleDataset([1, "a", (2, 3)])),
        lambda at: listed(at.ArrayDataset([1, 2, 3])),
        lambda at: listed(at.ArrayDataset([1, 2], np.ones((2, 2)), mx.nd.arange(2))),
        lambda at: [listed(at.SimpleDataset(range(9)).shard(4, i)) for i in range(4)],
        lambda at: [listed(at.SimpleDataset(range(2)).shard(4, i)) for i in range(4)],
        lambda at: [listed(at.SimpleDataset(range(5)).take(n)) for n in (None, 0, 3, 9)],
        lambda at: listed(at.SimpleDataset(range(9)).filter(lambda x: x % 2)),
        lambda at: listed(at.SimpleDataset(range(9)).sample(at.SequentialSampler(3))),
        lambda at: listed(at.SimpleDataset(range(9)).sample(at.RandomSampler(9))),
        lambda at: listed(
            at.SimpleDataset([(1, 2), (3, 4)]).transform(lambda x, y: x * y).filter(lambda x: x > 2)
        ),
        lambda at: listed(at.SimpleDataset([[1, 2], [3, 4]]).transform_first(lambda x: x * 2)),
        lambda at: listed(at.SimpleDataset([(1, 2), (3, 4)]).transform_first(lambda x: x * 10)),
    ):
        both(run)


@pytest.mark.parametrize(
    "run",
    [
        lambda at: at.DataLoader([1]),
        lambda at: at.DataLoader([1], 1, True, [0]),
        lambda at: at.DataLoader([1], 1, batch_sampler=[[0]]),
        lambda at: at.DataLoader([1], batch_sampler=[[0]], shuffle=True),
        lambda at: at.DataLoader([1], 1, timeout=0),
        lambda at: len(at.DataLoader([1, 2, 3], 2, last_batch="no")),
        lambda at: list(at.DataLoader([1, 2, 3], 2, last_batch="no")),
        lambda at: at.ArrayDataset(),
        lambda at: at.SimpleDataset(range(4)).shard(4, 4),
        lambda at: at.SimpleDataset(range(4)).shard(0, 0),
        lambda at: at.SimpleDataset(range(4)).shard(4, -1),
        lambda at: at.SimpleDataset(range(4)).sample([0]),
    ],
)
def test_refusals_are_equal(run: Any) -> None:
    assert isinstance(both(run), Exception)


@pytest.mark.parametrize("workers", WORKERS)
def test_errors_come_at_the_same_place(workers: str) -> None:
    def run(at: Any) -> Any:
        batches = iter(at.DataLoader(Fails(2, 4), 2, **WORKERS[workers]))
        found = [told(next(batches))]
        try:
            next(batches)
        except ZeroDivisionError as error:
            found.append(str(error))
        return found

    assert both(run)[1].startswith("of the user")


@pytest.mark.parametrize("workers", WORKERS)
def test_arrays_are_those_of_mx_np_where_a_program_has_set_that(workers: str) -> None:
    mx.npx.set_np()
    try:
        data = [(np.full(3, i, "f4"), mx.np.ones((2, 2)) * i, i) for i in range(6)]

        def run(at: Any) -> Any:
            batches = list(at.DataLoader(data, 3, **WORKERS[workers]))
            assert all(type(each) is mx.np.ndarray for batch in batches for each in batch)
            return [told(each.as_nd_ndarray()) for batch in batches for each in batch]

        both(run)
    finally:
        mx.npx.reset_np()


def test_the_estimator_and_the_iterator_of_modules_take_our_loaders() -> None:
    from mxnet import gluon
    from mxnet.contrib.io import DataLoaderIter
    from mxnet.gluon.contrib.estimator import Estimator

    def fit(at: Any) -> Any:
        np.random.seed(0)
        mx.random.seed(0)
        features = np.random.rand(32, 5).astype("f4")
        data = at.ArrayDataset(features, (features.sum(1) > 2.5).astype("f4"))
        train, check = at.DataLoader(data, 8, True, num_workers=2), at.DataLoader(data, 8)
        net = gluon.nn.Dense(2)
        net.initialize(mx.init.Constant(0.1))
        metric = mx.metric.Accuracy()
        estimator = Estimator(
            net, gluon.loss.SoftmaxCrossEntropyLoss(), train_metrics=metric, context=mx.cpu()
        )
        estimator.fit(train, check, epochs=2)
        return net.weight.data().asnumpy().round(5).tolist()

    both(fit)

    def iterate(at: Any) -> Any:
        data = at.ArrayDataset(np.arange(20, dtype="f4").reshape(10, 2), np.arange(10))
        batches = DataLoaderIter(at.DataLoader(data, 4))
        found = []
        for _ in range(2):
            for each in batches:
                real = 4 - each.pad  # the rest is whatever lay there
                found.append((told(each.data[0][:real]), told(each.label[0][:real]), each.pad))
            batches.reset()
        return found

    assert [pad for _, _, pad in both(iterate)] == [0, 0, 2] * 2


def test_our_loaders_are_mxnets_and_are_copied() -> None:
    import copy
    import pickle

    loader = ours.DataLoader([1, 2, 3], 2)
    assert isinstance(loader, theirs.DataLoader)
    assert isinstance(loader, ours.DataLoader)
    for each in (copy.deepcopy(loader), pickle.loads(pickle.dumps(loader))):
        assert isinstance(each, theirs.DataLoader)
        assert epochs(each, 1) == epochs(loader, 1)


def test_pinned_batches_are_equal() -> None:
    def run(at: Any) -> Any:
        data = [(np.ones(2), i) for i in range(4)]
        return [
            told(batch)
            for workers in WORKERS.values()
            for batch in at.DataLoader(data, 2, pin_memory=True, **workers)
        ]

    assert "cpu_pinned(0)" in str(both(run))


def stacked_nd(data: Any) -> Any:
    return mx.nd.stack(*[mx.nd.array(each) for each in data])


def numpy_tuple(data: Any) -> Any:
    return np.stack(data), len(data), {"n": mx.nd.ones((2,))}, "text"


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("function", [stacked_nd, numpy_tuple])
def test_what_batchify_functions_return_is_equal(workers: str, function: Any) -> None:
    data = [np.full(2, i, "f4") for i in range(6)]
    both(lambda at: epochs(at.DataLoader(data, 2, batchify_fn=function, **WORKERS[workers]), 1))


def test_batches_lie_in_shared_memory_and_may_be_written() -> None:
    loader = ours.DataLoader(np.ones((40, 1000), "f4"), 10, num_workers=2)
    batches = list(loader)
    for number, batch in enumerate(batches):
        batch[:] = number
    mx.nd.waitall()
    assert [batch.asnumpy().mean() for batch in batches] == [0, 1, 2, 3]
    del batches, batch
    for batch in loader:
        assert batch.asnumpy().min() == 1
    assert loader.stats()["arena"] is not None
    loader.close()


def test_training_programs_run(tmp_path: Path) -> None:
    from mxnet import autograd, gluon

    def run(at: Any) -> Any:
        np.random.seed(0)
        mx.random.seed(0)
        features = np.random.rand(64, 5).astype("f4")
        labels = (features.sum(1) > 2.5).astype("f4")
        loader = at.DataLoader(at.ArrayDataset(features, labels), 16, True, num_workers=2)
        net = gluon.nn.Dense(1)
        net.initialize(mx.init.Constant(0.1))
        trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.5})
        loss = gluon.loss.SigmoidBCELoss()
        found = []
        for _ in range(3):
            for x, y in loader:
                with autograd.record():
                    step = loss(net(x), y)
                step.backward()
                trainer.step(len(x))
                found.append(round(float(step.mean().asscalar()), 5))
        return found

    assert len(both(run)) == 12


# -- records and images --------------------------------------------------------------------------


@pytest.fixture
def records(tmp_path: Path) -> str:
    """A file of 3,000 records by MXNet, some of which have its magic number within."""
    magic = (0xCED7230A).to_bytes(4, "little")
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "r.idx"), str(tmp_path / "r.rec"), "w")
    for key in range(3000):
        body = str(key).encode() * (1 + key % 7) + magic * (key % 3)
        writer.write_idx(key, mx.recordio.pack(mx.recordio.IRHeader(0, key / 2, key, 0), body))
    writer.close()
    return str(tmp_path / "r.rec")


def test_records_are_equal(records: str) -> None:
    def run(at: Any) -> Any:
        dataset = at.RecordFileDataset(records)
        return [dataset[index] for index in range(len(dataset))]

    assert len(both(run)) == 3000


def as_they_are(samples: Any) -> Any:
    return samples


@pytest.mark.parametrize("workers", ["processes", "threads"])
def test_records_of_random_order_are_right_in_threads_and_processes(
    records: str, workers: str
) -> None:
    plain = theirs.RecordFileDataset(records)
    expected = [plain[index] for index in range(3000)]
    dataset = ours.RecordFileDataset(records)
    order = list(np.random.RandomState(1).permutation(3000))
    options = {**WORKERS[workers], "num_workers": 4, "batchify_fn": as_they_are}
    loader = ours.DataLoader(dataset, 50, sampler=order, **options)
    found = [record for batch in loader for record in batch]
    loader.close()
    assert sum(found[at] != expected[index] for at, index in enumerate(order)) == 0
    assert len(found) == 3000


def test_headers_are_packed_and_unpacked_equally() -> None:
    for label in (3, 2.5, [1.0, 2.0], np.array([1, 2, 3], "f4")):
        theirs_header = mx.recordio.IRHeader(0, label, 7, 9)
        packed = mx.recordio.pack(theirs_header, b"body")
        assert ours.recordio.pack(ours.recordio.IRHeader(0, label, 7, 9), b"body") == packed
        for module in (mx.recordio, ours.recordio):
            header, body = module.unpack(packed)
            assert bytes(body) == b"body"
            np.testing.assert_array_equal(header.label, np.float32(label))
            assert tuple(header)[2:] == (7, 9)


def save(path: Path, array: Any) -> None:
    image = pytest.importorskip("PIL.Image")
    path.parent.mkdir(parents=True, exist_ok=True)
    image.fromarray(array).save(path)


def test_images_of_folders_and_records_are_equal(tmp_path: Path) -> None:
    rng = np.random.RandomState(0)
    paths = [tmp_path / "images" / kind / f"{n}.png" for kind in ("cat", "dog") for n in range(3)]
    for path in paths:
        save(path, rng.randint(0, 255, (5, 7, 3), dtype=np.uint8))
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "i.idx"), str(tmp_path / "i.rec"), "w")
    for key, path in enumerate(paths):
        header = mx.recordio.IRHeader(0, float(key), key, 0)
        writer.write_idx(key, mx.recordio.pack(header, path.read_bytes()))
    writer.close()
    for flag in (0, 1):

        def folder(at: Any, flag: int = flag) -> Any:
            dataset = at.vision.ImageFolderDataset(str(tmp_path / "images"), flag)
            return [dataset.synsets, dataset.items, listed(dataset)]

        def recorded(at: Any, flag: int = flag) -> Any:
            return listed(at.vision.ImageRecordDataset(str(tmp_path / "i.rec"), flag))

        if flag:
            both(folder)
            both(recorded)
        for run in (folder, recorded):  # grey is rounded in another way
            mine, its = run(ours), run(theirs)
            for (image, label), (its_image, its_label) in zip(
                _pairs(mine), _pairs(its), strict=True
            ):
                assert image[:4] == its_image[:4]
                assert label == its_label
                assert np.abs(np.subtract(image[4], its_image[4])).max() <= 1

    def loaded(at: Any) -> Any:
        dataset = at.vision.ImageRecordDataset(str(tmp_path / "i.rec"))
        to_tensor = theirs.vision.transforms.ToTensor()
        loader = at.DataLoader(dataset.transform_first(to_tensor), 4, num_workers=2)
        return epochs(loader, 1)

    both(loaded)


def _pairs(told_of: Any) -> list[Any]:
    found = told_of[2] if told_of and isinstance(told_of[0], list) else told_of
    return [sample[1] for sample in found]


def test_mnist_and_cifar_files_are_read_equally(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import gzip
    import struct

    rng = np.random.RandomState(0)
    images, labels = rng.randint(0, 255, (9, 28, 28)), rng.randint(0, 9, 9)
    for name, content in (
        ("t10k-images-idx3-ubyte.gz", struct.pack(">IIII", 2051, 9, 28, 28) + bytes(images.flat)),
        ("t10k-labels-idx1-ubyte.gz", struct.pack(">II", 2049, 9) + bytes(labels.tolist())),
    ):
        (tmp_path / name).write_bytes(gzip.compress(content))
    from mxnet.gluon.data.vision import datasets

    monkeypatch.setattr(datasets, "check_sha1", lambda *_: True, raising=False)
    monkeypatch.setattr(datasets, "download", lambda _, path=None, **more: str(path), raising=False)

    def run(at: Any) -> Any:
        if at is theirs:
            dataset = at.vision.MNIST.__new__(at.vision.MNIST)
            dataset._root, dataset._train, dataset._transform = str(tmp_path), False, None
            dataset._test_data = ("t10k-images-idx3-ubyte.gz", "")
            dataset._test_label = ("t10k-labels-idx1-ubyte.gz", "")
            dataset._namespace = "mnist"
            monkeypatch.setattr(
                datasets,
                "download",
                lambda url, path=None, **more: str(tmp_path / url.rpartition("/")[2]),
            )
            dataset._get_data()
        else:
            dataset = at.vision.MNIST(str(tmp_path), train=False)
        return listed(dataset)

    assert len(both(run)) == 9


# -- datasets that carry something from sample to sample -----------------------------------------


def array_and_places(samples: Any) -> Any:
    """A batchify function of a program."""
    return np.stack([array for array, _ in samples]), [place for _, place in samples], len(samples)


ONE_WORKER: dict[str, dict[str, Any]] = {
    "none": {},
    "process": {"num_workers": 1},
    "thread": {"num_workers": 1, "thread_pool": True},
    "none, with a function": {"batchify_fn": array_and_places},
    "process, with a function": {"num_workers": 1, "batchify_fn": array_and_places},
    "thread, with a function": {
        "num_workers": 1,
        "thread_pool": True,
        "batchify_fn": array_and_places,
    },
}


def carried(kind: str, sample_s: float, options: dict[str, Any]) -> Any:
    """Return the run: two epochs of a loader."""

    def run(package: Any) -> Any:
        dataset = impure_datasets.make(kind, sample_s)
        loader = package.DataLoader(dataset, impure_datasets.SIZE, **options)
        return [[told(batch) for batch in loader] for _ in range(2)]

    return run


@pytest.mark.parametrize("sample_s", [0.0, impure_datasets.SLOW_S], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", impure_datasets.KINDS)
def test_what_a_dataset_keeps_between_samples_is_kept_the_same(kind: str, sample_s: float) -> None:
    """With two workers or more, chance decides which of Gluon's workers makes a batch."""
    for options in ONE_WORKER.values():
        both(carried(kind, sample_s, options))


@pytest.mark.evidence
@pytest.mark.parametrize("sample_s", [0.0, impure_datasets.SLOW_S], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", impure_datasets.KINDS)
def test_what_a_dataset_keeps_between_samples_is_the_same_in_every_run(
    kind: str, sample_s: float
) -> None:
    for options in ONE_WORKER.values():
        run = carried(kind, sample_s, options)
        first = both(run)
        assert [both(run) for _ in range(2)] == [first] * 2


@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_a_batch_is_made_by_one_worker_sample_after_sample(threads: bool) -> None:
    orders = [list(range(at, at + 4)) for at in range(0, impure_datasets.COUNT, 4)]
    for package in (ours, theirs):
        for sample_s in (0.0, impure_datasets.SLOW_S):
            dataset = impure_datasets.Logged(sample_s)
            loader = package.DataLoader(dataset, 4, num_workers=2, thread_pool=threads)
            batches = [batch.asnumpy().tolist() for _ in range(2) for batch in loader]
            impure_datasets.check_made_whole(batches, orders * 2)


@pytest.mark.evidence
@pytest.mark.parametrize("threads", [False, True], ids=["processes", "threads"])
def test_of_gluons_two_workers_the_one_that_is_free_makes_a_batch(threads: bool) -> None:
    """So runs of Gluon itself agree only with one worker."""
    dataset = impure_datasets.Logged(0.0, {0: 1.5})
    loader = theirs.DataLoader(dataset, 1, num_workers=2, thread_pool=threads, sampler=range(8))
    batches = [batch.asnumpy().tolist() for batch in loader]
    makers = impure_datasets.check_made_whole(batches, [[index] for index in range(8)])
    assert len(set(makers[1:5])) == 1  # all that are made ahead of the one that the loop waits for
    assert makers[0] != makers[1]


# -- padding -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make", [lambda: ours.batchify.Pad(-1), lambda: ours.nlp.batchify.Pad(pad_val=-1)]
)
@pytest.mark.parametrize(
    ("dtype", "value"), [("uint8", 255), ("int8", -1), ("bool", True), ("float16", -1)]
)
def test_ndarrays_are_padded_with_the_value_cast_and_a_warning(
    make: Any, dtype: str, value: Any
) -> None:
    """As GluonNLP 0.10 and MXNet 2.0.0b1 pad them; neither installs here."""
    samples = [mx.nd.array([1], dtype=dtype), mx.nd.array([1, 1], dtype=dtype)]
    with pytest.warns(UserWarning, match="^Using Pad with NDArrays is discouraged for speed"):
        found = make()(samples)
    assert told(found)[:3] == ("nd", dtype, (2, 2))
    assert found.asnumpy().tolist() == [[1, value], [1, 1]]


@pytest.mark.parametrize("stack", [ours.batchify.Stack(), ours.nlp.batchify.Stack()])
def test_ndarrays_of_bool_are_stacked(stack: Any) -> None:
    samples = [mx.nd.array([1, 0], dtype=bool), mx.nd.array([0, 0], dtype=bool)]
    assert told(stack(samples)) == ("nd", "bool", (2, 2), "cpu(0)", [[True, False], [False] * 2])


@pytest.mark.parametrize("workers", WORKERS)
def test_loaders_take_a_pad_of_ndarrays(workers: str) -> None:
    data = [mx.nd.ones(1 + index % 3, dtype="uint8") for index in range(6)]
    pad = ours.batchify.Pad(-1)
    (found,) = ours.DataLoader(data, 6, batchify_fn=pad, **WORKERS[workers])
    assert found.asnumpy().tolist() == [[1, 255, 255], [1, 1, 255], [1, 1, 1]] * 2
