"""Gluon's datasets of images: pixels and labels of each kind of file, and files that are bad."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from reader import ConfigError, ConfigTypeError, DataLoader, DatasetError, RecordWriter
from reader.compat.gluon import vision
from reader.compat.gluon.recordio import pack, pack_img
from reader.compat.gluon.vision import (
    CIFAR10,
    CIFAR100,
    MNIST,
    FashionMNIST,
    ImageFolderDataset,
    ImageListDataset,
    ImageRecordDataset,
)
from reader.frameworks.pillow import decode

Folder = Path


def pixels(number: int, shape: tuple[int, ...] = (6, 5, 3)) -> Any:
    return np.random.default_rng(number).integers(0, 256, shape, np.uint8)


def save(path: Path, array: Any, **options: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(array).save(path, **options)


def content(array: Any, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    (array if isinstance(array, Image.Image) else Image.fromarray(array)).save(
        file, kind, **options
    )
    return file.getvalue()


class Shifted:
    """A transform that workers can be sent."""

    def __call__(self, image: Any, label: Any) -> tuple[Any, Any]:
        return image.astype(np.int32) + 1, label


# -- decoding -----------------------------------------------------------------------------------


def test_an_image_has_the_channels_that_are_asked_for() -> None:
    grey = pixels(1, (4, 3))
    assert decode(content(grey), 0).tolist() == grey[:, :, np.newaxis].tolist()
    assert decode(content(grey), 1).tolist() == np.stack([grey] * 3, axis=2).tolist()
    color = pixels(1)
    assert (decode(content(color), 1).shape, decode(content(color), 0).shape) == (
        (6, 5, 3),
        (6, 5, 1),
    )
    opaque = pixels(2, (6, 5, 4))
    assert decode(content(opaque), -1).tolist() == opaque.tolist()
    assert decode(content(opaque), 1).tolist() == opaque[:, :, :3].tolist()
    decode(content(color), 1)[0] = 0  # it is the caller's


def test_an_image_of_16_bits_is_scaled_and_not_cut_off() -> None:
    deep = np.array([[0, 0x1234], [0x8000, 0xFFFF]], np.uint16)
    wanted = [[0, 0x12], [0x80, 0xFF]]
    file = content(Image.fromarray(deep))
    assert decode(file, 0)[:, :, 0].tolist() == decode(file, -1)[:, :, 0].tolist() == wanted
    assert decode(file, 1)[:, :, 2].tolist() == wanted


def test_a_photograph_is_turned_as_the_camera_was_held() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = content(np.zeros((4, 8, 3), np.uint8), "JPEG", exif=exif)
    assert [decode(file, color).shape for color in (1, 0, -1)] == [(8, 4, 3), (8, 4, 1), (4, 8, 3)]


def test_an_image_of_a_palette_becomes_colors() -> None:
    file = content(Image.fromarray(pixels(1)).quantize(200))
    assert (decode(file, 1) == pixels(1)).all()
    assert decode(file, -1).shape == (6, 5, 3)


# -- records ------------------------------------------------------------------------------------


def records(folder: Folder) -> Path:
    path = folder / "some.rec"
    with RecordWriter(path) as file:
        for number in range(12):
            label: Any = number if number % 2 else [number, 0.5]
            file.write(pack_img((0, label, number, 0), pixels(number)[:, :, ::-1], 3, ".png"))
    return path


def test_images_of_records_come_red_first_with_their_labels(tmp_path: Folder) -> None:
    dataset = ImageRecordDataset(str(records(tmp_path)))
    assert len(dataset) == 12
    for number in range(12):
        image, label = dataset[number]
        assert image.tolist() == pixels(number).tolist()
        if number % 2:
            assert (type(label), label) == (float, number)
        else:
            assert (label.dtype, label.tolist()) == (np.float32, [number, 0.5])
    grey = ImageRecordDataset(tmp_path / "some.rec", flag=0, transform=Shifted())
    assert (grey[1][0].shape, grey[1][0].dtype) == ((6, 5, 1), np.int32)
    assert dataset.filter(lambda pair: np.size(pair[1]) == 1).transform_first(np.sum).take(1)[
        0
    ] == (
        pixels(1).sum(),
        1,
    )


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_workers_decode_images_of_records(tmp_path: Folder, kind: Any) -> None:
    dataset = ImageRecordDataset(records(tmp_path), transform=Shifted()).transform(_first)
    with DataLoader(
        dataset, batch_size=4, num_workers=2, worker_type=kind, framework="numpy"
    ) as loader:
        found = np.concatenate(list(loader))
    assert found.tolist() == [
        (pixels(number).astype(np.int32) + 1).tolist() for number in range(12)
    ]


def _first(image: Any, label: Any) -> Any:
    return image


def test_a_record_without_an_image_is_reported_by_key(tmp_path: Folder) -> None:
    path = tmp_path / "some.rec"
    with RecordWriter(path) as file:
        file.write(b"short", key=7)
        file.write(pack((0, 1, 0, 0), b"none"), key=9)
    dataset = ImageRecordDataset(path)
    with pytest.raises(DatasetError, match=r"key 7 of '.*some.rec' has no image: .*no header"):
        dataset[0]
    with pytest.raises(DatasetError, match=r"key 9 of '.*some.rec' has no image: an image of 4"):
        dataset[1]


# -- folders and lists --------------------------------------------------------------------------


def test_images_of_folders_come_in_the_order_of_the_names(tmp_path: Folder) -> None:
    names = ["b/2.png", "b/10.PNG", "a/x.png", "c/y.png"]
    for number, name in enumerate(names):
        save(tmp_path / name, pixels(number))
    dataset = ImageFolderDataset(str(tmp_path))
    assert dataset.synsets == ["a", "b", "c"]
    order = [(2, 0), (1, 1), (0, 1), (3, 2)]
    assert dataset.items == [(str(tmp_path / names[number]), label) for number, label in order]
    for place, (number, label) in enumerate(order):
        image, found = dataset[place]
        assert (image.tolist(), found) == (pixels(number).tolist(), label)
    again = pickle.loads(pickle.dumps(ImageFolderDataset(tmp_path, 0, Shifted())))
    assert again[0][0].shape == (6, 5, 1)


def test_files_that_are_no_images_are_skipped_and_reported(tmp_path: Folder) -> None:
    save(tmp_path / "a/x.png", pixels(0))
    (tmp_path / "a/notes.txt").touch()
    (tmp_path / "readme").touch()
    with pytest.warns(UserWarning, match=r"^Ignoring 2 files of '.*', such as '.*notes.txt'"):
        dataset = ImageFolderDataset(tmp_path)
    assert len(dataset) == 1


def test_images_of_a_list_have_their_labels(tmp_path: Folder) -> None:
    for number in range(3):
        save(tmp_path / f"in/{number}.png", pixels(number))
    (tmp_path / "some.lst").write_text("0\t5.0\tin/0.png\n7\t6\t0.5\tin/1.png\n\n".rstrip("\n"))
    of_file = ImageListDataset(tmp_path, "some.lst")
    of_list = ImageListDataset(
        tmp_path, [[5, "in/0.png"], [6, 0.5, "in/1.png"], [[7, 8], "in/2.png"]]
    )
    assert (len(of_file), len(of_list)) == (2, 3)
    for dataset in of_file, of_list:
        for number, wanted in enumerate([[5], [6, 0.5], [7, 8]][: len(dataset)]):
            image, labels = dataset[number]
            assert image.tolist() == pixels(number).tolist()
            assert (labels.dtype, labels.tolist()) == (np.float32, wanted)
    assert of_list.items[2][0] == str(tmp_path / "in/2.png")
    of_list[0][1][0] = 99  # it is the caller's
    assert of_list[0][1] == 5
    assert ImageListDataset(tmp_path, [[5, "in/0.png"]], flag=0)[0][0].shape == (6, 5, 1)


def test_an_image_that_cannot_be_read_is_reported_by_its_path(tmp_path: Folder) -> None:
    dataset = ImageListDataset(tmp_path, [[0, "bad.png"], [0, "none.png"]])
    (tmp_path / "bad.png").write_bytes(content(pixels(1))[:60])
    with pytest.raises(DatasetError, match=r"the image '.*bad.png' cannot be read: an image of 60"):
        dataset[0]
    with pytest.raises(DatasetError, match=r"the image '.*none.png' cannot be read: .* No such"):
        dataset[1]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda at: ImageFolderDataset(at / "no"), ConfigError, "there is no folder '.*no'"),
        (lambda at: ImageFolderDataset(at, flag=2), ConfigError, "flag must be an int in .0, 1."),
        (lambda at: ImageListDataset(at), ConfigTypeError, "imglist must be the path of a list"),
        (lambda at: ImageListDataset(at, "no.lst"), ConfigError, "no.lst' cannot be read"),
        (
            lambda at: ImageListDataset(at, [["a.png"]]),
            ConfigError,
            "entry 0 of imglist must .*a.png",
        ),
        (lambda at: ImageListDataset(at, [[1, 2]]), ConfigError, "must be one or more labels"),
        (lambda at: ImageListDataset(at, [["x", "a.png"]]), ConfigError, "entry 0 of imglist"),
        (lambda at: ImageListDataset(at, [3]), ConfigError, r"entry 0 of imglist .* 3 \(int\)"),
        (lambda at: ImageListDataset(at, at / "bad.lst"), ConfigError, "line 2 of .*bad.lst' must"),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    tmp_path: Folder, make: Callable[[Path], Any], kind: type[Exception], text: str
) -> None:
    (tmp_path / "bad.lst").write_text("0\t1\ta.png\nmoon\n")
    with pytest.raises(kind, match=text):
        make(tmp_path)


@pytest.mark.parametrize(
    "make",
    [
        lambda at: ImageRecordDataset(at / "a.rec"),
        lambda at: ImageFolderDataset(at),
        lambda at: ImageListDataset(at, []),
        lambda at: decode(b"", 1),
    ],
)
def test_without_pillow_it_says_what_to_install(
    tmp_path: Folder, make: Callable[[Path], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(ConfigError, match=r'Run: pip install "lodreader\[images\]"'):
        make(tmp_path)


# -- published files ----------------------------------------------------------------------------


def write_mnist(folder: Folder, part: str, count: int, is_packed: bool = True) -> None:
    folder.mkdir(exist_ok=True)
    images, labels = pixels(count, (count, 28, 28)), pixels(count + 1, (count,)) % 10
    for name, array in (("images-idx3", images), ("labels-idx1", labels)):
        head = struct.pack(f">{1 + array.ndim}I", 2048 + array.ndim, *array.shape)
        path, whole = folder / f"{part}-{name}-ubyte", head + array.tobytes()
        if is_packed:
            path.with_name(path.name + ".gz").write_bytes(gzip.compress(whole))
        else:
            path.write_bytes(whole)


@pytest.mark.parametrize("kind", [MNIST, FashionMNIST])
def test_mnist_is_read_packed_and_unpacked(tmp_path: Folder, kind: type[MNIST]) -> None:
    write_mnist(tmp_path, "train", 5)
    write_mnist(tmp_path, "t10k", 3, is_packed=False)
    for dataset, count in ((kind(tmp_path), 5), (kind(str(tmp_path), train=False), 3)):
        assert len(dataset) == count
        image, label = dataset[count - 1]
        assert (image.shape, image.dtype) == ((28, 28, 1), np.uint8)
        assert (image[:, :, 0] == pixels(count, (count, 28, 28))[-1]).all()
        assert (type(label), label) == (np.int32, (pixels(count + 1, (count,)) % 10)[-1])
        image[:] = 0  # it is the caller's
        assert dataset[count - 1][0].any()
    changed = pickle.loads(pickle.dumps(kind(tmp_path, transform=Shifted())))
    assert changed[0][0].dtype == np.int32


def write_cifar(path: Path, count: int, labels: int) -> Any:
    path.parent.mkdir(exist_ok=True)
    rows = pixels(count, (count, labels + 3072))
    path.write_bytes(rows.tobytes())
    return rows


def test_cifar10_is_read_in_the_order_of_its_files(tmp_path: Folder) -> None:
    inner = tmp_path / "cifar-10-batches-bin"
    rows = np.concatenate(
        [write_cifar(inner / f"data_batch_{number}.bin", number, 1) for number in range(1, 6)]
    )
    write_cifar(inner / "test_batch.bin", 4, 1)
    assert len(CIFAR10(tmp_path, train=False)) == 4
    for dataset in CIFAR10(tmp_path), CIFAR10(inner):
        assert len(dataset) == 15
        for number in 0, 7, 14:
            image, label = dataset[number]
            assert (image.shape, image.dtype) == ((32, 32, 3), np.uint8)
            assert image[3, 4].tolist() == rows[number, 1:].reshape(3, 32, 32)[:, 3, 4].tolist()
            assert (type(label), label) == (np.int32, rows[number, 0])


def test_cifar100_has_coarse_and_fine_labels(tmp_path: Folder) -> None:
    rows = write_cifar(tmp_path / "train.bin", 3, 2)
    assert [CIFAR100(tmp_path)[number][1] for number in range(3)] == rows[:, 0].tolist()
    fine = CIFAR100(tmp_path, fine_label=True)
    assert [fine[number][1] for number in range(3)] == rows[:, 1].tolist()
    assert (fine[1][0].transpose(2, 0, 1).ravel() == rows[1, 2:]).all()


@pytest.mark.parametrize(
    ("kind", "names", "source"),
    [
        (MNIST, "train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz", "cvdfoundation"),
        (FashionMNIST, "train-images-idx3-ubyte.gz", "zalandoresearch"),
        (CIFAR10, "data_batch_1.bin, data_batch_2.bin", "cifar-10-binary.tar.gz"),
        (CIFAR100, "train.bin", "cifar-100-binary.tar.gz"),
    ],
)
def test_missing_files_are_named(tmp_path: Folder, kind: Any, names: str, source: str) -> None:
    (tmp_path / "train-images-idx3-ubyte.gz").touch()
    with pytest.raises(ConfigError, match="needs the files") as caught:
        kind(tmp_path)
    said = str(caught.value)
    assert f"{kind.__name__} needs the files {names}" in said
    assert source in said
    assert str(tmp_path) in said
    assert "reader downloads nothing" in said


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        (lambda whole: whole[:-9], "is damaged"),
        (lambda whole: b"no gzip", "is damaged: Not a gzipped file"),
        (lambda whole: gzip.compress(gzip.decompress(whole)[:-1]), "cannot reshape"),
        (lambda whole: gzip.compress(b"\0"), "is damaged"),
        (lambda whole: gzip.compress(struct.pack(">4I", 2049, 0, 0, 0)), "begins with 2049, not"),
    ],
)
def test_a_damaged_file_of_mnist_is_reported(
    tmp_path: Folder, damage: Callable[[bytes], bytes], text: str
) -> None:
    write_mnist(tmp_path, "train", 5)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(DatasetError, match=text) as caught:
        MNIST(tmp_path)
    assert str(path) in str(caught.value)


def test_files_of_different_parts_are_reported(tmp_path: Folder) -> None:
    write_mnist(tmp_path, "train", 5)
    write_mnist(tmp_path / "other", "train", 4)
    name = "train-labels-idx1-ubyte.gz"
    (tmp_path / "other" / name).replace(tmp_path / name)
    with pytest.raises(DatasetError, match="have 5 images and 4 labels"):
        MNIST(tmp_path)
    (tmp_path / "test.bin").write_bytes(b"abc")
    with pytest.raises(DatasetError, match=r"test.bin' is damaged: cannot reshape"):
        CIFAR100(tmp_path, train=False)


def test_vision_names_the_datasets_of_images() -> None:
    assert sorted(vision.__all__) == sorted(
        "CIFAR10 CIFAR100 MNIST FashionMNIST ImageFolderDataset ImageListDataset"
        " ImageRecordDataset".split()
    )
    assert all(hasattr(vision, name) for name in vision.__all__)
