"""Images of JPEG and PNG files: the pixels beside Pillow's, crops, sizes, rows, and bad files."""

from __future__ import annotations

import io
import pickle
import struct
import sys
import threading
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import ConfigError, ConfigTypeError, DatasetError, ImageError
from reader._core.pixels.render import render
from reader.images import (
    CenterCrop,
    Compose,
    ImageFolder,
    RandomResizedCrop,
    Resize,
    decode,
    image_size,
)
from reader.images.encoded_image import EncodedImage

PIL = pytest.importorskip("PIL")
Image = pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")
PILLOW = tuple(int(part) for part in PIL.__version__.split(".")[:2])


def photograph(height: int, width: int, seed: int = 0) -> Any:
    """Pixels as smooth as a photograph's, with edges in them."""
    rng = np.random.default_rng(seed)
    small = rng.integers(0, 256, (max(2, height // 12), max(2, width // 12), 3), np.uint8)
    image = np.asarray(Image.fromarray(small).resize((width, height), Image.BICUBIC)).copy()
    image[height // 3 : height // 2, width // 4 : width // 2] = (200, 30, 60)
    return image


def encoded(array: Any, kind: str = "JPEG", **options: Any) -> bytes:
    file = io.BytesIO()
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    image.save(file, kind, **({"quality": 92} if kind == "JPEG" else {}) | options)
    return file.getvalue()


def by_pillow(content: bytes, mode: str = "RGB", size: Any = None, box: Any = None) -> Any:
    image = Image.open(io.BytesIO(content)).convert(mode)
    if box is not None:
        top, left, height, width = box
        image = image.crop((left, top, left + width, top + height))
    if size is not None:
        image = image.resize(size[::-1], Image.BILINEAR)
    array = np.asarray(image).astype(int)
    return array[:, :, np.newaxis] if mode == "L" else array


def difference(found: Any, wanted: Any) -> tuple[float, int]:
    """Mean and greatest difference in levels."""
    assert found.dtype == np.uint8
    assert found.shape == wanted.shape
    away = np.abs(found.astype(int) - wanted)
    return float(away.mean()), int(away.max())


# -- beside Pillow ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"progressive": True},
        {"subsampling": "4:4:4"},
        {"subsampling": "4:2:2"},
        {"optimize": True, "quality": 40},
        {"restart_marker_rows": 1},
    ],
)
@pytest.mark.parametrize("shape", [(375, 500), (61, 33), (1, 1), (8, 17)])
def test_a_jpeg_is_decoded_as_by_pillow(options: dict[str, Any], shape: tuple[int, int]) -> None:
    content = encoded(photograph(*shape), **options)
    assert image_size(content) == shape
    assert difference(decode(content), by_pillow(content))[1] <= 2


def test_a_grey_jpeg_and_the_grey_of_a_colored_one() -> None:
    content = encoded(photograph(40, 60))
    assert difference(decode(content, mode="L"), by_pillow(content, "L"))[0] < 0.5
    grey = encoded(photograph(40, 60)[:, :, 0])
    assert difference(decode(grey, mode="L"), by_pillow(grey, "L"))[1] <= 2
    assert difference(decode(grey), by_pillow(grey))[1] <= 2


@pytest.mark.parametrize("sampling", [0x11, 0x21, 0x12, 0x22, 0x41, 0x14, 0x42, 0x31, 0x13, 0x44])
@pytest.mark.parametrize("is_grey", [True, False])
def test_a_jpeg_of_any_subsampling_is_decoded_as_by_pillow(sampling: int, is_grey: bool) -> None:
    array = photograph(48, 96)
    content = bytearray(encoded(array[:, :, 0] if is_grey else array, subsampling="4:4:4"))
    header = content.index(b"\xff\xc0" if content.count(b"\xff\xc0") else b"\xff\xc2")
    content[header + 11] = sampling  # of the first component: the rest is cut off, or grey
    wanted = _pillow_or_none(bytes(content))
    if wanted is None:
        with pytest.raises(ImageError):
            decode(bytes(content))
    else:
        assert difference(decode(bytes(content)), wanted)[1] <= 2


def _pillow_or_none(content: bytes) -> Any:
    try:
        return by_pillow(content)
    except OSError:
        return None


def test_a_jpeg_of_four_inks_is_decoded_as_by_pillow() -> None:
    content = encoded(Image.fromarray(photograph(50, 70)).convert("CMYK"))
    assert image_size(content) == (50, 70)
    assert difference(decode(content), by_pillow(content))[1] <= 2
    assert decode(content, size=(20, 30)).shape == (20, 30, 3)
    out = np.zeros((50, 70, 3), np.uint8)
    assert decode(content, out=out) is out
    assert (out == decode(content)).all()


def png_images() -> dict[str, Any]:
    color = photograph(30, 41)
    alpha = np.concatenate([color, np.full((30, 41, 1), 77, np.uint8)], axis=2)
    return {
        "color": Image.fromarray(color),
        "alpha": Image.fromarray(alpha),
        "grey": Image.fromarray(color[:, :, 0]),
        "grey and alpha": Image.fromarray(alpha[:, :, 2:]),
        "palette": Image.fromarray(color).quantize(50),
        "one bit": Image.fromarray(color).convert("1"),
    }


@pytest.mark.parametrize("name", list(png_images()))
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_png_is_decoded_as_by_pillow(name: str, mode: str) -> None:
    content = encoded(png_images()[name], "PNG")
    assert image_size(content) == (30, 41)
    found = decode(content, mode=mode)
    assert (found == by_pillow(content, mode)).all()
    assert found.flags.c_contiguous
    found[:] = 0  # it is the caller's


def test_a_png_of_16_bits_keeps_the_upper_8() -> None:
    content = encoded(Image.fromarray(np.array([[0, 0x1234], [0x8000, 0xFFFF]], np.uint16)), "PNG")
    for mode in "L", "RGB":
        assert decode(content, mode=mode)[:, :, 0].tolist() == [[0, 0x12], [0x80, 0xFF]]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_an_image_keeps_the_orientation_of_its_file(kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    content = encoded(photograph(40, 60), kind, exif=exif)
    assert image_size(content) == decode(content).shape[:2] == (40, 60)


# -- sizes and crops ----------------------------------------------------------------------------

BOXES = [None, (0, 0, 100, 120), (31, 57, 200, 333), (374, 499, 1, 1)]


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("box", BOXES)
def test_a_crop_is_that_of_the_whole(kind: str, box: Any) -> None:
    content = encoded(photograph(375, 500), kind)
    assert difference(decode(content, crop=box), by_pillow(content, box=box))[1] <= 2


@pytest.mark.parametrize("size", [(224, 224), (300, 90), (190, 251), (400, 600)])
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_a_resized_image_differs_from_pillows_by_rounding(size: Any, mode: str) -> None:
    content = encoded(photograph(375, 500), "PNG")
    mean, most = difference(decode(content, size=size, mode=mode), by_pillow(content, mode, size))
    assert mean < 0.5
    assert most <= 2


@pytest.mark.parametrize("box", BOXES[:3])
@pytest.mark.parametrize("size", [(224, 224), (100, 120), (40, 50), (21, 22), (3, 2), (1, 1)])
def test_a_scaled_jpeg_is_close_to_pillows_resized_one(size: Any, box: Any) -> None:
    content = encoded(photograph(375, 500))
    found = decode(content, size=size, crop=box)
    assert difference(found, by_pillow(content, size=size, box=box))[0] < 4.0


def test_no_pixel_outside_of_a_crop_affects_it() -> None:
    image = np.zeros((64, 64, 3), np.uint8)
    image[16:48, 16:48] = 255
    content = encoded(image, "PNG")
    assert (decode(content, crop=(16, 16, 32, 32), size=(9, 40)) == 255).all()


def test_a_crop_at_odd_edges_stays_within_a_scaled_image() -> None:
    content = encoded(photograph(101, 67))
    for top, left in ((0, 0), (50, 32), (1, 1), (37, 29)):
        for size in ((3, 3), (25, 17), (12, 4)):
            box = (top, left, 101 - top, 67 - left)
            assert decode(content, crop=box, size=size).shape == (*size, 3)


def test_resample_refuses_what_does_not_fit() -> None:
    image, out = np.zeros((4, 5, 3), np.uint8), np.zeros((2, 2, 3), np.uint8)
    rows, columns = (0, 4, 0, 4), (0, 5, 0, 5)
    for span in ((0, 5, 0, 4), (-1, 2, 0, 4), (0, 0, 0, 4), (1, 4, 0, 4), (0, np.nan, 0, 4)):
        with pytest.raises(ValueError, match="does not lie within 4 pixels"):
            render(image, span, columns, out)
    for span in ((0, 5, 0, 6), (0, 5, -1, 5), (0, 5, 3, 3), (np.nan, 1, 0, 5), (np.inf, 1, 0, 5)):
        with pytest.raises(ValueError, match="does not lie within 5 pixels"):
            render(image, rows, span, out)
    for shape in ((2, 2, 1), (0, 2, 3), (2, 2), (2, 2, 2)):
        with pytest.raises(ValueError, match=r"channels|three axes"):
            render(image, rows, columns, np.zeros(shape, np.uint8))
    with pytest.raises(ValueError, match="out of float32 needs a table"):
        render(image, rows, columns, np.zeros((2, 2, 3), np.float32))
    for table in (
        np.zeros((3, 255), np.float32),
        np.zeros((3, 256)),
        np.zeros((1, 256), np.float32),
    ):
        with pytest.raises(ValueError, match="table must be 3 x 256 of float32"):
            render(image, rows, columns, np.zeros((2, 2, 3), np.float32), table)


# -- out ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize(
    "options",
    [{}, {"size": (30, 20)}, {"crop": (1, 2, 30, 40)}, {"mode": "L", "size": (90, 90)}],
)
def test_out_is_written_in_place_and_returned(kind: str, options: dict[str, Any]) -> None:
    content = encoded(photograph(60, 80), kind)
    wanted = decode(content, **options)
    rows = np.full((3, *wanted.shape), 7, np.uint8)
    row = rows[1]
    assert decode(content, out=row, **options) is row
    assert (rows[1] == wanted).all()
    assert (rows[0] == 7).all()
    assert (rows[2] == 7).all()


def read_only() -> Any:
    array = np.zeros((6, 8, 3), np.uint8)
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("size", [None, (6, 8)])
@pytest.mark.parametrize(
    ("out", "error", "text"),
    [
        (np.zeros((6, 8, 1), np.uint8), ConfigError, r"shape \(6, 8, 3\) .* got \(6, 8, 1\)"),
        (np.zeros((8, 6, 3), np.uint8), ConfigError, r"got \(8, 6, 3\) and uint8"),
        (np.zeros((6, 8, 3), np.float32), ConfigError, "got .* and float32"),
        (np.zeros((6, 8, 3), np.int8), ConfigError, "got .* and int8"),
        (np.zeros((6, 8, 6), np.uint8)[:, :, ::2], ConfigError, "C-contiguous, got .* strided"),
        (read_only(), ConfigError, "writable .* read-only"),
        (bytearray(144), ConfigTypeError, "an array of NumPy, got bytearray"),
    ],
)
def test_an_out_that_does_not_fit_is_refused(
    size: Any, out: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        decode(encoded(photograph(6, 8)), size=size, out=out)


# -- what cannot be -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"mode": "BGR"}, ConfigError, 'mode must be "RGB" or "L", got \'BGR\''),
        ({"mode": ["L"]}, ConfigError, "mode must be"),
        ({"size": 224}, ConfigTypeError, r"size must be \(height, width\), .* got 224 \(int\)"),
        ({"size": (2, 3, 4)}, ConfigTypeError, r"size must be \(height, width\)"),
        ({"size": (2.5, 3)}, ConfigTypeError, "whole numbers of pixels"),
        ({"size": (0, 3)}, ConfigError, r"size=\(0, 3\) is no size"),
        ({"size": (10**6, 10**6)}, ConfigError, "is no size of an image"),
        ({"crop": (0, 0, 6)}, ConfigTypeError, r"crop must be \(top, left, height, width\)"),
        ({"crop": (0, 0, 7, 8)}, ConfigError, "does not lie within an image of .* 6 x 8 pixels"),
        ({"crop": (-1, 0, 3, 3)}, ConfigError, "does not lie within"),
        ({"crop": (0, 8, 3, 0)}, ConfigError, "does not lie within"),
    ],
)
def test_an_invalid_argument_is_refused(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        decode(encoded(photograph(6, 8)), **options)


def test_each_kind_of_source_is_read(tmp_path: Path) -> None:
    content = encoded(photograph(20, 30))
    path = tmp_path / "a.jpg"
    path.write_bytes(content)
    wanted = decode(content)
    array = np.frombuffer(content, np.uint8)
    sources = [path, str(path), bytearray(content), memoryview(content), array]
    for source in sources:
        assert (decode(source) == wanted).all()
        assert image_size(source) == (20, 30)
    for source in (3, None, array[::2], "no\0path"):
        with pytest.raises((ConfigTypeError, ImageError), match=r"source must be|cannot be read"):
            decode(source)  # type: ignore[arg-type]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ImageError, match=r"none.jpg' cannot be read: .*No such file") as caught:
        decode(tmp_path / "none.jpg")
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert isinstance(caught.value, DatasetError)
    with pytest.raises(ImageError, match=r"cannot be read: .*directory"):
        image_size(tmp_path)


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF" + bytes(30), "of the kind PDF"),
        (b"P7\nWIDTH 3", "it begins with b'P7"),
        (b"\0\0\0\x14ftypisom\0\0\0\0mp41", "of the kind HEIF or video"),
        (b"\0\0\0\x0cJXL \r\n\x87\n", "of the kind JPEG XL"),
        (b"\n <!DOCTYPE html>", "of the kind HTML"),
        (b"PK\3\4", "of the kind ZIP"),
        (b"nothing known at all", "it begins with b'nothing known at'"),
        (b"\xff\xd8", "it begins with"),
    ],
)
def test_a_file_of_another_kind_is_reported(tmp_path: Path, content: bytes, kind: str) -> None:
    path = tmp_path / "some.jpg"
    path.write_bytes(content)
    for read in (decode, image_size):
        with pytest.raises(ImageError, match=f"some.jpg' is none of JPEG, .*: .*{kind}") as no:
            read(path)
        assert "Convert it, or leave it out" in str(no.value)


@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"mode": "CMYK"}])
def test_a_jpeg_cut_off_anywhere_is_an_error(options: dict[str, Any]) -> None:
    image = Image.fromarray(photograph(40, 56)).convert(options.pop("mode", "RGB"))
    content = encoded(image, **options)
    for length in range(3, len(content) - 2):
        with pytest.raises(ImageError, match=r"an image of [\d,]+ bytes is a damaged JPEG file"):
            decode(content[:length])
    for size in ((5, 7), (20, 28), (30, 41)):
        with pytest.raises(ImageError, match="is a damaged JPEG file"):
            decode(content[: len(content) // 2], size=size)


def test_a_cut_off_jpeg_is_reported_as_cut_off() -> None:
    content = encoded(photograph(40, 56))
    with pytest.raises(ImageError, match=r"damaged JPEG file: it is cut off. Make the file anew"):
        decode(content[:-20])


def test_a_png_cut_off_anywhere_is_an_error() -> None:
    content = encoded(photograph(40, 56), "PNG")
    end = content.rindex(b"IDAT") + 1
    for length in [*range(8, 60), *range(60, end, 97)]:
        with pytest.raises(ImageError, match="is a damaged PNG file"):
            decode(content[:length])


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_damage_at_any_byte_is_an_image_or_an_error_by_name(kind: str, rng: Any) -> None:
    content = encoded(photograph(16, 24), kind)
    wrong = 0
    for place in range(len(content)):
        for value in (content[place] ^ 0xFF, content[place] ^ 1, int(rng.integers(256))):
            damaged = bytearray(content)
            damaged[place] = value
            try:
                found = decode(damaged, size=(8, 8))
            except ImageError as error:
                wrong += 1
                assert str(error).startswith(f"an image of {len(content):,} bytes")  # noqa: PT017
            else:
                assert found.shape == (8, 8, 3)
    assert wrong > len(content) // 4


def with_size(content: bytes, height: int, width: int) -> bytes:
    """A PNG whose header claims another size."""
    header = b"IHDR" + struct.pack(">II", width, height) + content[24:29]
    return content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:]


def test_an_invalid_size_is_refused_before_memory_is_taken() -> None:
    content = encoded(photograph(16, 24), "PNG")
    with pytest.raises(ImageError, match=r"a damaged PNG file: its header says 0 x 5 pixels"):
        decode(with_size(content, 0, 5))
    for size in ((2**31 - 1, 2**31 - 1), (2**20, 2**10)):
        with pytest.raises(ImageError, match=r"has .* pixels, .* max_pixels=134,217,728 is the"):
            decode(with_size(content, *size))


@pytest.mark.skipif(PILLOW < (10, 2), reason="Pillow 10.2 or later writes such files")
def test_bytes_between_the_parts_of_a_jpeg_do_no_harm() -> None:
    content = encoded(photograph(40, 56), restart_marker_rows=1)
    place = content.index(b"\xff\xd1")
    odd = content[:place] + b"\0\0\0" + content[place:]
    assert difference(decode(odd), by_pillow(odd))[1] <= 2


@pytest.mark.parametrize(("missing", "needed"), [("simplejpeg", "simplejpeg"), ("PIL", "Pillow")])
def test_without_a_decoder_it_says_what_to_install(
    tmp_path: Path, missing: str, needed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    content = encoded(photograph(6, 8), "JPEG" if missing == "simplejpeg" else "PNG")
    (tmp_path / "a/x.png").write_bytes(content)
    monkeypatch.setitem(sys.modules, missing, None)
    for make in (lambda: decode(content), lambda: ImageFolder(tmp_path)):
        with pytest.raises(ConfigError, match=f'{needed}.*pip install "lodreader.images.?"'):
            make()


# -- threads ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_many_threads_decode_the_same_files_at_once(kind: str) -> None:
    contents = [encoded(photograph(90 + k, 120, k), kind) for k in range(4)]
    wanted = [decode(content, size=(40, 40)) for content in contents]
    wrong: list[int] = []

    def work(first: int) -> None:
        for turn in range(24):
            k = (first + turn) % 4
            if (decode(contents[k], size=(40, 40)) != wanted[k]).any():
                wrong.append(k)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("step", ["decode", "resize"])
def test_another_thread_runs_while_an_image_is_made(step: str) -> None:
    content = encoded(photograph(600, 800))
    image, out = decode(content), np.empty((300, 400, 3), np.uint8)
    is_waiting, go = threading.Event(), threading.Event()
    ran: list[bool] = []

    def other() -> None:
        is_waiting.set()
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    is_waiting.wait()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e3)  # from here on a thread runs only when another releases the GIL
    try:
        go.set()
        for _ in range(1000):
            if step == "decode":
                decode(content, out=image)
            else:
                render(image, (0, 600, 0, 600), (0, 800, 0, 800), out)
            if ran:
                break
        assert ran
    finally:
        sys.setswitchinterval(interval)
        thread.join()


# -- crops --------------------------------------------------------------------------------------


def test_a_center_crop_is_in_the_center() -> None:
    assert CenterCrop()(256, 256) == (16, 16, 224, 224)
    assert CenterCrop(1)(100, 301, None) == (0, 100, 100, 100)
    assert CenterCrop(1, ratio=2)(100, 100) == (25, 0, 50, 100)
    assert CenterCrop(0.01)(1, 1) == (0, 0, 1, 1)


@pytest.mark.parametrize("shape", [(375, 500), (1, 1), (2, 900), (900, 2), (7, 5)])
def test_a_random_crop_lies_within_the_image(shape: tuple[int, int], rng: Any) -> None:
    crop = RandomResizedCrop()
    for _ in range(200):
        top, left, height, width = crop(*shape, rng)
        assert 0 <= top <= shape[0] - height
        assert 0 <= left <= shape[1] - width
        assert min(height, width) >= 1


def test_random_crops_have_the_areas_and_ratios_that_are_asked_for(rng: Any) -> None:
    crop = RandomResizedCrop(scale=(0.2, 0.5), ratio=(0.5, 2))
    boxes = np.array([crop(1000, 1000, rng) for _ in range(500)])
    areas, ratios = boxes[:, 2] * boxes[:, 3] / 1e6, boxes[:, 3] / boxes[:, 2]
    assert 0.19 < areas.min() < 0.22 < 0.4 < areas.max() < 0.51
    assert 0.49 < ratios.min() < 0.6 < 1.8 < ratios.max() < 2.02
    assert abs(np.log(ratios).mean()) < 0.15
    again = crop(1000, 1000, np.random.default_rng(3))
    assert again == crop(1000, 1000, np.random.default_rng(3))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CenterCrop(0), "part must be above 0 and at most 1, got 0"),
        (lambda: CenterCrop(1.5), "part must be"),
        (lambda: CenterCrop((2.5, 3)), "whole numbers of pixels"),
        (lambda: CenterCrop(ratio=-1), "ratio must be width / height, above 0, got -1"),
        (lambda: RandomResizedCrop(scale=(0, 1)), "scale must be"),
        (lambda: RandomResizedCrop(scale=(0.5, 0.2)), "scale must be"),
        (lambda: RandomResizedCrop(ratio=(2, 1)), "ratio must be .low, high."),
        (lambda: RandomResizedCrop(ratio=(0, 1)), "ratio must be width"),
    ],
)
def test_an_invalid_crop_is_refused(make: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        make()


def test_crops_and_errors_survive_pickle() -> None:
    for crop in (CenterCrop(0.5, 2), RandomResizedCrop((0.1, 0.2))):
        assert pickle.loads(pickle.dumps(crop)) == crop
    assert reader.images.ImageError is ImageError is reader.ImageError


def test_colors_that_cannot_be_converted_are_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "lab.tif"
    Image.new("LAB", (8, 8)).save(path)
    assert decode(path).shape == (8, 8, 3)
    with pytest.raises(ImageError, match=r"lab.tif' has colors of the mode LAB, .* to L: .*as RGB"):
        decode(path, mode="L")


@pytest.mark.parametrize("size", [(150, 200), (75, 100), (37, 50)])
def test_an_exact_jpeg_is_resized_from_its_full_size(size: tuple[int, int]) -> None:
    content = encoded(photograph(300, 400))
    wanted = by_pillow(content, "RGB", size)
    for crop in (None, (0, 0, 300, 400)):
        found = decode(content, size=size, crop=crop, exact=True)
        mean, most = difference(found, wanted)
        assert mean < 0.6, mean
        assert most <= 3, most
        assert (decode(content, size=size, crop=crop) != found).any()
    listed = Compose([Resize(size)], exact=True)
    assert np.array_equal(listed.apply(content), found)
    with pytest.raises(ConfigError, match="upright, exact and max_pixels to the whole list"):
        Compose([listed])


def test_an_exact_jpeg_is_decoded_in_part_and_whole_at_its_full_size() -> None:
    image = EncodedImage(encoded(photograph(300, 400)), exact=True)
    assert not image.is_scalable
    pixels, factor = image.whole(4)
    assert (pixels.shape, factor) == ((300, 400, 3), 1)
    part = decode(encoded(photograph(300, 400)), size=(20, 20), crop=(100, 120, 80, 80), exact=True)
    whole = Compose([Resize((20, 20))]).apply(pixels[100:180, 120:200])
    assert np.array_equal(part, whole)
