"""Training on real digits: losses bit-equal to paddle.io's, both graphs, and two processes.

Imports the harness and pytest; the programs run in processes of their own. Holds nothing.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.peers.program import OURS, PADDLE, Story, Verdict, run_command, switched

pytestmark = [pytest.mark.peer, pytest.mark.timeout(150)]

DIGITS = """
    import importlib.util
    import random
    import numpy as np
    import paddle
    from paddle.io import BatchSampler, DataLoader, Dataset, DistributedBatchSampler
    from tests.peers.inside import tell

    # scikit-learn's file of digits, without the second that importing scikit-learn takes
    (sklearn,) = importlib.util.find_spec("sklearn").submodule_search_locations
    table = np.loadtxt(f"{sklearn}/datasets/data/digits.csv.gz", delimiter=",", max_rows=320)

    class Digits(Dataset):
        images, labels = table[:, :64], table[:, 64]

        def __len__(self):
            return 320

        def __getitem__(self, index):
            image = np.zeros((1, 28, 28), "float32")
            image[0, 2:26, 2:26] = np.kron(self.images[index].reshape(8, 8) / 16, np.ones((3, 3)))
            image += np.random.normal(0, 0.01, image.shape)  # augmentation, drawn in the worker
            return image, np.array([self.labels[index]], "int64")

    def seed():
        np.random.seed(7)
        random.seed(7)
        paddle.seed(7)

    def make_loader(**args):  # 11 batches, the last one short: no multiple of two workers
        seed()
        return DataLoader(Digits(), batch_size=30, shuffle=True, **args)
"""

WORKERS = {
    "no workers": "num_workers=0",
    "2 workers": "num_workers=2",
    "2 persistent workers": "num_workers=2, persistent_workers=True",
}
DYNAMIC = """
    loader = make_loader(%s)
    net = paddle.vision.models.LeNet()
    optimizer = paddle.optimizer.Adam(0.001, parameters=net.parameters())
    losses = []
    for epoch in range(3):
        for image, label in loader:
            loss = paddle.nn.functional.cross_entropy(net(image), label)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            losses.append(float(loss).hex())
    tell(losses)
    """
STATIC = """
    paddle.enable_static()
    main, startup = paddle.static.Program(), paddle.static.Program()
    with paddle.static.program_guard(main, startup):
        image = paddle.static.data("image", [None, 1, 28, 28], "float32")
        label = paddle.static.data("label", [None, 1], "int64")
        loss = paddle.nn.functional.cross_entropy(paddle.vision.models.LeNet()(image), label)
        paddle.optimizer.Adam(0.001).minimize(loss)
    exe = paddle.static.Executor(paddle.CPUPlace())
    loader = make_loader(feed_list=[image, label], %s)
    exe.run(startup)
    losses = []
    for epoch in range(3):
        for feed in loader:
            if loader.return_list:
                feed = {"image": feed[0], "label": feed[1]}
            losses.append(float(exe.run(main, feed=feed, fetch_list=[loss])[0]).hex())
    tell(losses)
    """


def check_same(both: tuple[Verdict, Verdict]) -> None:
    theirs, ours = both
    assert len(theirs.result) == 33
    first, last = (float.fromhex(theirs.result[step]) for step in (0, -1))
    assert last < first, "it does not learn"
    assert ours.result == theirs.result


def workers(text: str, args: str = "") -> pytest.MarkDecorator:
    """The story `text` with each way of having workers."""
    # paddle.io's workers, forked beside the threads of its executor, crash now and then.
    return pytest.mark.parametrize(
        (),
        [
            pytest.param(
                id=name, marks=pytest.mark.compares(Story(DIGITS + text % (args + how), attempts=4))
            )
            for name, how in WORKERS.items()
        ],
    )


@workers(DYNAMIC)
def test_losses_of_lenet_in_dynamic_graph_are_bit_equal(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@workers(STATIC, "return_list=False, ")
def test_losses_of_lenet_in_static_graph_are_bit_equal(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


@workers(STATIC, "return_list=True, ")
def test_losses_of_lenet_in_static_graph_with_lists_are_bit_equal(
    both: tuple[Verdict, Verdict],
) -> None:
    check_same(both)


FIT = """
    seed()
    model = paddle.Model(paddle.vision.models.LeNet())
    optimizer = paddle.optimizer.Adam(0.001, parameters=model.parameters())
    model.prepare(optimizer, paddle.nn.CrossEntropyLoss(), paddle.metric.Accuracy())
    losses = []

    class Keep(paddle.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):
            losses.append(float(logs["loss"][0]).hex())

    model.fit(make_loader(%s), epochs=3, verbose=0, callbacks=[Keep()])
    model.evaluate(make_loader(), verbose=0)
    tell(losses)
    """


@workers(FIT)
def test_losses_of_model_fit_are_bit_equal(both: tuple[Verdict, Verdict]) -> None:
    check_same(both)


LAUNCHED = (
    DIGITS.replace("from tests.peers.inside import tell\n", "")
    + """
    import json
    import sys

    class Numbered(Digits):
        def __getitem__(self, index):
            return (*super().__getitem__(index), index)

    paddle.distributed.init_parallel_env()
    rank = paddle.distributed.get_rank()
    found = []
    for num_workers in (0, 2):
        seed()
        net = paddle.DataParallel(paddle.vision.models.LeNet())
        optimizer = paddle.optimizer.SGD(0.05, parameters=net.parameters())
        dataset = Numbered()
        sampler = DistributedBatchSampler(dataset, batch_size=32, shuffle=True)
        loader = DataLoader(dataset, batch_sampler=sampler, num_workers=num_workers)
        losses, indices = [], []
        for epoch in range(2):
            sampler.set_epoch(epoch)
            for image, label, index in loader:
                loss = paddle.nn.functional.cross_entropy(net(image), label)
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
                losses.append(float(loss).hex())
                indices.append(index.tolist())
        found.append([losses, indices])
    with open(f"{sys.argv[1]}-{rank}.json", "w") as file:
        json.dump([rank, paddle.distributed.get_world_size(), found], file)
    """
)


@pytest.mark.evidence
@pytest.mark.slow
def test_two_launched_processes_train_to_the_same_losses_on_their_exact_shards(
    tmp_path: Path,
) -> None:
    theirs = _launch(tmp_path, "theirs", PADDLE)
    ours = _launch(tmp_path, "ours", OURS)
    assert ours == theirs
    # Without padding and with both ranks together, an epoch is every sample once.
    for run in (0, 1):
        shards = [result[2][run][1] for result in ours]
        assert not {i for b in shards[0][:5] for i in b} & {i for b in shards[1][:5] for i in b}
        for epoch in (slice(0, 5), slice(5, 10)):
            seen = [index for shard in shards for batch in shard[epoch] for index in batch]
            assert sorted(seen) == list(range(320))


def _launch(folder: Path, name: str, module: str) -> list[Any]:
    path = folder / f"{name}.py"
    path.write_text(switched(LAUNCHED, module), encoding="utf-8")
    command = [sys.executable, "-W", "ignore", "-m", "paddle.distributed.launch"]
    command += ["--backend", "gloo", "--nproc_per_node", "2", "--log_dir", str(folder / name)]
    verdict = run_command([*command, str(path), str(folder / name)], limit_s=60.0)
    logs = "\n".join(log.read_text()[-2000:] for log in sorted((folder / name).glob("workerlog*")))
    assert verdict.exit_code == 0, verdict.story() + logs
    found = [json.loads((folder / f"{name}-{rank}.json").read_text()) for rank in (0, 1)]
    assert [result[:2] for result in found] == [[0, 2], [1, 2]]
    return found
