"""What becomes of the range of each mode of Pillow: the table of docs/images.md, a test per row."""

from __future__ import annotations

import io
import struct
import zlib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import ConfigError, DatasetError, ImageError
from reader.frameworks import pillow
from reader.images import (
    CenterCrop,
    ColorJitter,
    Compose,
    ImageFolder,
    Normalize,
    RandomErasing,
    RandomHorizontalFlip,
    Resize,
    decode,
)

Image = pytest.importorskip("PIL.Image")


def encoded(image: Any, kind: str = "TIFF", **options: Any) -> bytes:
    file = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(
        file, kind, **options
    )
    return file.getvalue()


def tiff(
    numbers: Any, bits: int, photometric: int = 1, sample_format: int = 1, orientation: int = 1
) -> bytes:
    """An uncompressed TIFF of one row, of little-endian numbers that Pillow does not write."""
    values = [int(number) for number in numbers]
    if bits == 12:  # two numbers in three bytes
        joined = "".join(f"{value:012b}" for value in values)
        pixels = int(joined, 2).to_bytes(len(joined) // 8, "big")
    else:
        pixels = b"".join((value % 2**bits).to_bytes(bits // 8, "little") for value in values)
    tags = [(256, len(values)), (257, 1), (258, bits), (259, 1), (262, photometric), (273, 0)]
    tags += [(274, orientation), (277, 1), (278, 1), (279, len(pixels)), (339, sample_format)]
    start = 8 + 2 + 12 * len(tags) + 4
    entries = b"".join(
        struct.pack("<HHII", tag, 4, 1, start if tag == 273 else value) for tag, value in tags
    )
    head = b"II*\0" + struct.pack("<IH", 8, len(tags))
    return head + entries + struct.pack("<I", 0) + pixels


def numbers(values: Any, dtype: Any) -> Any:
    return np.array([values], dtype)


def ppm(values: Any, most: int) -> bytes:
    return b"P5 %d 1 %d\n" % (len(values), most) + numbers(values, ">u2").tobytes()


COLORS = np.array([[[10, 100, 200], [255, 0, 0], [0, 255, 0], [250, 250, 251]]], np.uint8)
LIKE_PILLOW = {  # modes of 8 bits or fewer
    "1": (Image.fromarray(COLORS).convert("1"), "PNG"),
    "L": (Image.fromarray(COLORS).convert("L"), "TIFF"),
    "P": (Image.fromarray(COLORS).convert("P"), "PNG"),
    "LA": (Image.fromarray(COLORS).convert("LA"), "PNG"),
    "PA": (Image.fromarray(COLORS).convert("PA"), "TIFF"),
    "RGB": (Image.fromarray(COLORS), "BMP"),
    "RGBA": (Image.fromarray(COLORS).convert("RGBA"), "PNG"),
    "CMYK": (Image.fromarray(COLORS).convert("CMYK"), "TIFF"),
    "YCbCr": (Image.fromarray(COLORS).convert("YCbCr"), "TIFF"),
    "LAB": (Image.new("LAB", (4, 1), (50, 20, 30)), "TIFF"),
}


@pytest.mark.parametrize("mode", list(LIKE_PILLOW))
def test_a_mode_of_8_bits_has_the_numbers_of_pillow(mode: str) -> None:
    image, kind = LIKE_PILLOW[mode]
    content = encoded(image, kind)
    opened = Image.open(io.BytesIO(content))
    assert opened.mode == mode
    found = decode(content)
    assert (found == np.asarray(opened.convert("RGB"))).all()


#: content, Pillow's mode, what we make, what Pillow and torchvision make
DEEP: dict[str, tuple[bytes, str, list[int], list[int]]] = {
    "TIFF of 16 bits": (
        encoded(numbers([0, 255, 256, 65535], np.uint16)),
        *("I;16", [0, 0, 1, 255], [0, 255, 255, 255]),
    ),
    "TIFF of 16 bits, big-endian": (
        encoded(numbers([0, 255, 256, 65535], ">u2")),
        *("I;16B", [0, 0, 1, 255], [0, 255, 255, 255]),
    ),
    "TIFF of 16 bits, 0 is white": (
        tiff([0, 255, 256, 65535], 16, photometric=0),
        *("I;16", [255, 255, 254, 0], [0, 255, 255, 255]),
    ),
    "TIFF of 12 bits": (
        tiff([0, 16, 2048, 4095], 12),
        *("I;16", [0, 1, 128, 255], [0, 16, 255, 255]),
    ),
    "PPM of 16 bits": (
        ppm([0, 255, 256, 65535], 65535),
        *("I", [0, 0, 1, 255], [0, 255, 255, 255]),
    ),
    "PPM of 12 bits": (
        ppm([0, 16, 2048, 4095], 4095),
        *("I", [0, 1, 128, 255], [0, 255, 255, 255]),
    ),
    "TIFF of 32 bits": (
        encoded(numbers([0, 1, 128, 255], np.int32)),
        *("I", [0, 1, 128, 255], [0, 1, 128, 255]),
    ),
    "TIFF of 32 bits without sign": (
        tiff([0, 1, 128, 255], 32),
        *("I", [0, 1, 128, 255], [0, 1, 128, 255]),
    ),
    "TIFF of 16 bits with sign": (
        tiff([0, 1, 128, 255], 16, sample_format=2),
        *("I", [0, 1, 128, 255], [0, 1, 128, 255]),
    ),
    "TIFF of floats": (
        encoded(numbers([0, 0.5, 0.75, 1], np.float32)),
        *("F", [0, 128, 191, 255], [0, 0, 0, 1]),
    ),
    "PFM of grey": (
        b"Pf\n4 1\n-1.0\n" + numbers([0, 0.5, 0.75, 1], "<f4").tobytes(),
        *("F", [0, 128, 191, 255], [0, 0, 0, 1]),
    ),
    "PFM of grey, big-endian": (
        b"Pf\n4 1\n1.0\n" + numbers([0, 0.5, 0.75, 1], ">f4").tobytes(),
        *("F", [0, 128, 191, 255], [0, 0, 0, 1]),
    ),
}


@pytest.mark.skipif(find_spec("torchvision") is None, reason="torchvision is not installed")
def test_the_loader_of_torchvision_makes_the_numbers_of_pillow(tmp_path: Path) -> None:
    from tools.domain_bench.image_peers import _import_torchvision

    _import_torchvision()
    from torchvision.datasets.folder import pil_loader

    path = tmp_path / "image"
    for content, _, _, theirs in DEEP.values():
        path.write_bytes(content)
        assert np.asarray(pil_loader(str(path)))[0, :, 0].tolist() == theirs
    for image, kind in LIKE_PILLOW.values():
        path.write_bytes(encoded(image, kind))
        assert (np.asarray(pil_loader(str(path))) == decode(path)).all()


@pytest.mark.parametrize("name", list(DEEP))
def test_a_mode_of_more_bits_is_brought_to_the_range_of_the_table(name: str) -> None:
    content, mode, ours, theirs = DEEP[name]
    opened = Image.open(io.BytesIO(content))
    assert opened.mode == mode
    assert np.asarray(opened.convert("RGB"))[0, :, 1].tolist() == theirs
    for channels in "RGB", "L":
        assert decode(content, mode=channels)[0, :, 0].tolist() == ours
    assert Compose().apply(content)[0, :, 2].tolist() == ours
    assert Compose().apply(opened)[0, :, 1].tolist() == ours  # an image of Pillow
    for color, shape in ((1, (1, 4, 3)), (0, (1, 4, 1)), (-1, (1, 4, 1))):  # of shards
        found = pillow.decode(content, color)
        assert found.shape == shape
        assert found[0, :, 0].tolist() == ours


def test_a_png_of_16_bits_opened_by_an_older_pillow_has_its_upper_8() -> None:
    image = Image.fromarray(numbers([0, 255, 256, 65535], np.int32))
    image.format = "PNG"  # before Pillow 11 the mode was I
    assert pillow.pixels(image, 0)[0].tolist() == [0, 0, 1, 255]


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (encoded(numbers([-5, 70000], np.int32)), "whole numbers from -5 to 70,000, .* to 255, "),
        (encoded(numbers([0, 256], np.int32)), "whole numbers from 0 to 256, and whole .* 32 bits"),
        (tiff([1, 2**32 - 1], 32), "whole numbers from -1 to 1, "),
        (encoded(numbers([0, 255], np.float32)), "floats from 0.0 to 255.0, .* to 1, white"),
        (encoded(numbers([-1, 1], np.float32)), "floats from -1.0 to 1.0, and floats of 32 bits"),
        (encoded(numbers([np.nan, 1], np.float32)), "floats from nan to nan"),
        (encoded(numbers([np.inf, 1], np.float32)), "floats from 1.0 to inf"),
    ],
)
def test_numbers_of_another_range_are_refused_where_pillow_would_clip_them(
    content: bytes, text: str
) -> None:
    with pytest.raises(ImageError, match=rf"an image of .* has {text}.*leave it out"):
        decode(content)
    with pytest.raises(ImageError, match=rf"the image of Pillow has {text}"):
        Compose().apply(Image.open(io.BytesIO(content)))
    with pytest.raises(DatasetError, match=rf"an image of \d+ bytes has {text}.*Convert it"):
        pillow.decode(content, 1)


def test_floats_that_a_filter_made_a_little_greater_than_1_are_white() -> None:
    content = encoded(numbers([-1e-7, 1.0000001, 1.001], np.float32))
    assert decode(content, mode="L")[0, :, 0].tolist() == [0, 255, 255]


#: content, and the numbers with which all of the file's bits are kept: as uint16, and as floats
ALL_BITS: dict[str, tuple[bytes, list[int], list[float]]] = {
    "PNG of 16 bits": (
        encoded(numbers([0, 255, 256, 65535], np.uint16), "PNG"),
        [0, 255, 256, 65535],
        [0, 255 / 65535, 256 / 65535, 1],
    ),
    "TIFF of 16 bits, 0 is white": (
        DEEP["TIFF of 16 bits, 0 is white"][0],
        [65535, 65280, 65279, 0],
        [1, 65280 / 65535, 65279 / 65535, 0],
    ),
    "TIFF of 12 bits": (
        DEEP["TIFF of 12 bits"][0],
        [0, 256, 32776, 65535],
        [0, 256 / 65535, 32776 / 65535, 1],
    ),
    "PPM of 12 bits": (
        DEEP["PPM of 12 bits"][0],
        [0, 256, 32776, 65535],
        [0, 256 / 65535, 32776 / 65535, 1],
    ),
    "TIFF of 32 bits": (
        DEEP["TIFF of 32 bits"][0],
        [0, 257, 128 * 257, 65535],
        [0, 1 / 255, 128 / 255, 1],
    ),
    "TIFF of floats": (
        encoded(numbers([0, 0.5, 1e-4, 1], np.float32)),
        [0, 32768, 7, 65535],
        [0, 0.5, 1e-4, 1],
    ),
    "PNG of 8 bits": (
        encoded(numbers([0, 1, 128, 255], np.uint8), "PNG"),
        [0, 257, 128 * 257, 65535],
        [0, 1 / 255, 128 / 255, 1],
    ),
}


@pytest.mark.parametrize("name", list(ALL_BITS))
@pytest.mark.parametrize("mode", ["RGB", "L"])
def test_all_bits_of_a_file_are_kept_as_uint16_and_floats(
    name: str, mode: str, tmp_path: Path
) -> None:
    content, whole, floats = ALL_BITS[name]
    path = tmp_path / "class" / "image.png"
    path.parent.mkdir()
    path.write_bytes(content)
    opened = Image.open(io.BytesIO(content))
    for dtype, wanted in (("uint16", whole), ("float32", floats), ("float64", floats)):
        found = decode(content, mode=mode, dtype=dtype)
        assert (found.shape, found.dtype) == ((1, 4, 3 if mode == "RGB" else 1), dtype)
        assert (found == found[:, :, :1]).all()
        np.testing.assert_allclose(found[0, :, 0], wanted, rtol=1e-6)
        out = np.zeros_like(found)
        assert decode(content, mode=mode, dtype=dtype, out=out) is out
        assert (out == found).all()
        assert (decode(content, mode=mode, dtype=dtype, crop=(0, 1, 1, 2)) == found[:, 1:3]).all()
        compose = Compose([RandomHorizontalFlip(p=1)], mode=mode, dtype=dtype)
        assert (compose.apply(content) == found[:, ::-1]).all()
        assert (compose.apply(opened) == found[:, ::-1]).all()
        first = Compose(mode=mode, dtype=dtype, layout="channels_first")
        assert (first.apply(content) == found.transpose(2, 0, 1)).all()
        for options in ({}, {"cache": "1MB"}):
            folder = ImageFolder(tmp_path, dtype=dtype, mode=mode, **options)
            assert (folder[0][0] == found).all()
            assert (folder[0][0] == found).all()  # from the cache
    normalized = Compose([Normalize(0.5, 0.25)], mode=mode).apply(content)[0, :, 0]
    np.testing.assert_allclose(normalized, (np.array(floats) - 0.5) / 0.25, rtol=1e-5, atol=1e-6)


def test_a_deep_image_is_resized_as_by_pillow_and_its_crop_reads_no_other_pixels() -> None:
    rng = np.random.default_rng(0)
    pixels = rng.random((40, 50), np.float32)
    pixels[:, 30:] = np.nan
    found = decode(encoded(pixels), size=(7, 9), crop=(3, 2, 21, 28), mode="L", dtype="float32")
    part = Image.fromarray(pixels[3:24, 2:30]).resize((9, 7), Image.BILINEAR)
    np.testing.assert_allclose(found[:, :, 0], np.asarray(part), rtol=1e-6)
    twice = Compose([Resize((20, 20)), CenterCrop(10)], size=(10, 10), mode="L", dtype="float32")
    whole = np.asarray(Image.fromarray(pixels[:, :30]).resize((20, 20), Image.BILINEAR))
    found = twice.apply(encoded(pixels[:, :30]))
    np.testing.assert_allclose(found[:, :, 0], whole[5:15, 5:15], atol=1e-5)


def test_floats_keep_any_range_as_floats_and_are_refused_as_uint16() -> None:
    content = encoded(numbers([-3, 0.5, 70000], np.float32))
    assert decode(content, mode="L", dtype="float32")[0, :, 0].tolist() == [-3, 0.5, 70000]
    with pytest.raises(ImageError, match=r"has floats from -3.0 to 70,000.0, .*leave it out"):
        decode(content, mode="L", dtype="uint16")
    counts = encoded(numbers([0, 510], np.int32))
    assert decode(counts, mode="L", dtype="float32")[0, :, 0].tolist() == [0, 2]


def test_a_change_of_colors_works_on_8_bits_of_a_cached_deep_image(tmp_path: Path) -> None:
    path = tmp_path / "class" / "image.tif"
    path.parent.mkdir()
    path.write_bytes(DEEP["TIFF of floats"][0])
    same: Any = lambda image: image  # noqa: E731  a function in the list
    for options in ({}, {"cache": "1MB"}):
        folder = ImageFolder(tmp_path, transforms=[same], dtype="float32", **options)
        for _ in range(2):
            found = folder[0][0][0, :, 0] * 255
            assert np.rint(found).tolist() == DEEP["TIFF of floats"][2]
    path.write_bytes(encoded(numbers([0, 2], np.float32)))
    folder = ImageFolder(tmp_path, transforms=[same], dtype="float32", cache="1MB")
    with pytest.raises(ImageError, match=r"image.tif' has floats from 0.0 to 2.0, .*leave it out"):
        folder[0]


@pytest.mark.parametrize(("bits", "photometric"), [(12, 1), (16, 0), (16, 1)])
def test_an_upright_turn_keeps_the_range_of_deep_numbers(bits: int, photometric: int) -> None:
    values = [0, 7 << bits - 4, 9 << bits - 4, (1 << bits) - 1]
    plain = pillow.decode(tiff(values, bits, photometric), 1)
    content = tiff(values, bits, photometric, orientation=6)
    turned = pillow.decode(content, 1)
    assert turned[:, 0].tolist() == plain[0].tolist()
    for deep in (False, True):
        image = Image.open(io.BytesIO(tiff(values, bits, photometric)))
        expected: Any = pillow.as_pixels(image, 1, False, deep)
        found: Any = pillow.as_pixels(Image.open(io.BytesIO(content)), 1, True, deep)
        assert found[:, 0].tolist() == expected[0].tolist()


def test_what_works_on_8_bits_is_refused_with_uint16(tmp_path: Path) -> None:
    for each in ColorJitter(0.1), RandomErasing(), np.flipud:
        with pytest.raises(ConfigError, match=r'works on 8 bits, and dtype="uint16" keeps all'):
            Compose([each], dtype="uint16")
    with pytest.raises(ConfigError, match='makes floats, and dtype is "uint16"'):
        Compose([Normalize(0.5, 0.5)], dtype="uint16")
    path = tmp_path / "class" / "image.png"
    path.parent.mkdir()
    path.write_bytes(ALL_BITS["PNG of 16 bits"][0])
    with pytest.raises(ConfigError, match=r"cache_shorter_side keeps 8 bits, and dtype="):
        ImageFolder(tmp_path, dtype="uint16", cache="1MB", cache_shorter_side=4)


def deep_png(kind: int, numbers: Any) -> bytes:
    """Return a PNG of 16 bits, of a kind that Pillow reads and does not write."""
    height, width, _ = numbers.shape
    raw = b"".join(b"\0" + row.astype(">u2").tobytes() for row in numbers)
    header = struct.pack(">IIBB", width, height, 16, kind) + bytes(3)
    png = b"\x89PNG\r\n\x1a\n"
    for name, part in [(b"IHDR", header), (b"IDAT", zlib.compress(raw)), (b"IEND", b"")]:
        png += struct.pack(">I", len(part)) + name + part
        png += struct.pack(">I", zlib.crc32(name + part))
    return png


DEEP_COLORS = {
    "PNG": deep_png(2, COLORS),
    "PPM": b"P6 # a remark\n4 1 65535\n" + COLORS.astype(">u2").tobytes(),
}


@pytest.mark.parametrize("kind", list(DEEP_COLORS))
def test_colors_of_16_bits_which_pillow_cuts_are_refused_as_uint16(kind: str) -> None:
    content = DEEP_COLORS[kind]
    assert decode(content, dtype="float32").max() < 2 / 255
    with pytest.raises(
        ImageError, match=r"16 bits of each color, of which Pillow reads 8 in this form, and"
    ):
        decode(content, dtype="uint16")
    assert decode(b"P6 4 1 255\n" + COLORS.tobytes(), dtype="uint16").max() == 65535


@pytest.mark.parametrize(
    "content",
    [
        deep_png(4, np.array([[[256, 65535], [4096, 0]]])),
        struct.pack(">hbbHHHH", 474, 0, 2, 2, 2, 1, 1).ljust(512, b"\0") + b"\1\0\x10\0",
    ],
    ids=["PNG with opacity", "SGI"],
)
def test_grey_of_16_bits_which_pillow_cuts_is_refused_as_uint16(content: bytes) -> None:
    assert decode(content)[0, :, 0].tolist() == [1, 16]
    with pytest.raises(ImageError, match=r"16 bits of each color, of which Pillow reads 8 in this"):
        decode(content, dtype="uint16")


def test_an_out_of_another_dtype_is_refused() -> None:
    content = ALL_BITS["PNG of 16 bits"][0]
    with pytest.raises(ConfigError, match=r"out must have the shape \(1, 4, 3\) and uint16, as"):
        decode(content, dtype="uint16", out=np.zeros((1, 4, 3), np.uint8))
    with pytest.raises(ConfigError, match=r"dtype must be one of uint8, uint16, float16"):
        decode(content, dtype="int8")
