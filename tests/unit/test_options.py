"""The loaders take exactly the options of the table."""

from __future__ import annotations

import ast
import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import reader
from reader.compat import gluon
from reader.config import OPTIONS, LoaderConfig, elsewhere_of, names_of
from reader.errors import ConfigError

_ROOT = Path(reader.__file__).parent
# read in more than three files: each has a part of its own in what the option means
_READ_MORE = {
    "collate_fn": "it is called by workers, and says what is stacked, converted and advised",
    "num_workers": "the config of workers has it, too, and their pools and loops read it there",
    "persistent_workers": "pools, round robins, epochs' marks and states outlive an epoch with it",
    "seed": "it keys orders, workers, engines and states",
}


def parameters_of(loader: Any) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(loader).parameters)


def test_the_loader_takes_each_option_with_its_default() -> None:
    found = parameters_of(reader.DataLoader)
    assert found.keys() - {"dataset"} == OPTIONS.keys()
    left_open = {"places", "error_budget"}  # None stands for the default of the table
    for name in OPTIONS.keys() - left_open:
        assert found[name].default == OPTIONS[name].default, name
    assert all(found[name].default is None for name in left_open)


@pytest.mark.parametrize(
    ("face", "library"), [("torch", "torch.utils.data"), ("paddle", "paddle.io")]
)
def test_a_face_adds_the_options_that_the_table_gives_it(face: str, library: str) -> None:
    theirs = pytest.importorskip(library).DataLoader
    ours = importlib.import_module(f"reader.compat.{face}").DataLoader
    added = (parameters_of(ours).keys() - parameters_of(theirs).keys()) & OPTIONS.keys()
    assert added == set(names_of(face))


def test_the_gluon_face_takes_the_options_that_the_table_gives_it() -> None:
    assert set(names_of("gluon")) <= parameters_of(gluon.DataLoader).keys()


@pytest.mark.parametrize("face", ["torch", "paddle"])
def test_an_option_that_a_face_lacks_names_the_face_that_has_it(face: str) -> None:
    pytest.importorskip(face)
    loader = importlib.import_module(f"reader.compat.{face}").DataLoader
    message = f"use that with framework='{face}'"
    assert elsewhere_of(face, message)["seed_globals"] == message
    with pytest.raises(TypeError, match=f"'seed_globals': it is an argument of .*{message}"):
        loader([1], seed_globals=False)


def test_every_check_of_an_option_names_it() -> None:
    for name, option in OPTIONS.items():
        if option.check is not None:
            with pytest.raises(ConfigError, match=name):
                LoaderConfig.build([1], **{name: object()})


def test_checked_options_are_checked_again_for_another_dataset() -> None:
    config = LoaderConfig.build([1], seed=3, batch_size=2)
    other = config.of_dataset([4, 5], is_iterable=False, batch_size=None)
    assert (other.dataset, other.batch_size, other.seed) == ([4, 5], None, 3)
    with pytest.raises(ConfigError, match="batch_size must be an int of 1 or more, got 0"):
        config.of_dataset([1], is_iterable=False, batch_size=0)
    with pytest.raises(ConfigError, match="drop_last=True drops a short last batch"):
        other.of_dataset([1], is_iterable=False, drop_last=True)
    with pytest.raises(ConfigError, match="an IterableDataset has none"):
        config.of_dataset(iter, is_iterable=True, sampler=[0])
    auto = LoaderConfig.build([1], num_workers="auto")
    with pytest.raises(ConfigError, match="an iterable dataset has a part for each worker"):
        auto.of_dataset(iter, is_iterable=True)
    with pytest.raises(TypeError, match=r"without __getitem__"):
        config.of_dataset(5, is_iterable=False)


def test_the_reference_page_shows_the_table() -> None:
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    from tools import options_page

    assert options_page.main([]) == 0


def test_the_face_for_pytorch_takes_any_in_order_as_pytorch_does() -> None:
    torch = pytest.importorskip("reader.compat.torch")
    for value, is_kept in ((1, True), (None, False), ("", False)):
        loader = torch.DataLoader([1, 2], in_order=value)
        assert [batch.tolist() for batch in loader] == [[1], [2]]
        assert loader._engine.config.in_order is is_kept


def test_a_loader_of_pytorch_checks_its_options_once(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("reader.compat.torch")
    asked = []

    def build(*args: Any, **options: Any) -> LoaderConfig:
        asked.append(options)
        return made(*args, **options)

    made = LoaderConfig.build
    monkeypatch.setattr(LoaderConfig, "build", build)
    # no other test has this combination: equal options are checked once in a process
    loader = torch.DataLoader([1, 2, 3], num_workers=1, worker_retries=17)
    assert len(list(loader)) == len(list(loader)) == 3
    assert len(asked) == 1
    loader.worker_retries = 18
    assert len(list(loader)) == 3
    assert len(asked) == 2
    loader.worker_retries = -1
    with pytest.raises(ConfigError, match="worker_retries must be an int of 0 or more, got -1"):
        iter(loader)


def read_of_configs(source: str) -> set[str]:
    """The options that a source reads: attributes of what is named a config."""
    read = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
    own = {"config", "_config"}
    found = {n.attr for n in read if {getattr(n.value, k, "") for k in ("attr", "id")} & own}
    return found & OPTIONS.keys()


def test_an_option_is_read_of_the_config_in_three_files_at_most() -> None:
    files: dict[str, list[str]] = {}
    for path in sorted(_ROOT.rglob("*.py")):
        place = path.relative_to(_ROOT)
        if place.parts[0] not in ("compat", "loader.py", "config.py"):
            for name in read_of_configs(path.read_text(encoding="utf-8")):
                files.setdefault(name, []).append(str(place))
    assert {name for name, read in files.items() if len(read) > 3} == _READ_MORE.keys(), files


def test_an_option_elsewhere_has_the_words_of_the_table() -> None:
    found = elsewhere_of("torch", "the face's own")
    assert found["use_shared_memory"] == "it is an argument of Paddle's loader; leave it out"
    assert found["feed_list"] == "it is for static programs of Paddle"
    assert found["seed_globals"] == "the face's own"
