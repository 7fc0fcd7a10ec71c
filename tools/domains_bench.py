"""Measure the input of a detector, or of a model of sound, beside the usual program under PyTorch.

    python -m tools.domains_bench detection|audio [--rounds 5] [--json FILE]

Each loader makes the same batches, of the same files, with 2 workers, in turns, in one run. Medians
of the rounds are shown, in milliseconds for a batch. The programs are those of docs/detection.md
and docs/audio.md.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import reader
from reader.collate import AsList, Pad, Stack, Tuple
from reader.images import Compose, Normalize, RandomHorizontalFlip, Resize, decode
from tools.images_bench import MEAN, STD, make_files

WORKERS, SIDE, LENGTH, RATE = 2, 512, 32_000, 16_000

Loaders = dict[str, Any]


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.domains_bench", description=__doc__)
    parser.add_argument("domain", choices=("detection", "audio"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        make: Callable[[Path], Loaders] = {"detection": detection, "audio": audio}[chosen.domain]
        loaders = make(Path(folder))
        times: dict[str, list[float]] = {name: [] for name in loaders}
        for loader in loaders.values():
            _seconds_per_batch(loader)  # workers start, and caches fill
        for _ in range(chosen.rounds):
            for name, loader in loaders.items():
                times[name].append(_seconds_per_batch(loader))
    found = {name: statistics.median(each) for name, each in times.items()}
    first = next(iter(found.values()))
    for name, value in found.items():
        print(f"{name:48s} {value * 1e3:8.2f} ms per batch, {first / value:5.1f} times faster")
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def _seconds_per_batch(loader: Any) -> float:
    begun, count = time.perf_counter(), 0
    for images, *_ in loader:
        np.asarray(images).reshape(-1)[::4096].sum()
        count += 1
    return (time.perf_counter() - begun) / count


# -- detection ----------------------------------------------------------------------------------


def detection(root: Path) -> Loaders:
    """Return loaders of pictures with boxes."""
    from torch.utils.data import DataLoader

    make_files(root, 128, 1.0)
    rng = np.random.default_rng(0)
    annotations: list[Any] = []
    for path in sorted(root.glob("*/*.jpg")):
        corners = rng.uniform(0, 200, (int(rng.integers(1, 9)), 2))
        boxes = np.concatenate([corners, corners + rng.uniform(10, 100, corners.shape)], 1)
        annotations.append((str(path), boxes.tolist(), [1] * len(boxes)))
    options: dict[str, Any] = {"batch_size": 16, "num_workers": WORKERS, "persistent_workers": True}
    pictures: Any = _Pictures(annotations)
    collate = Tuple(Stack(), AsList(), AsList())
    cached = reader.cache(_Decoded(annotations), memory="2GB").map(augment, with_index=True)
    return {
        "PyTorch, Pillow": DataLoader(
            _UsualPictures(annotations),  # type: ignore[arg-type]
            collate_fn=_lists,
            **options,
        ),
        "reader": reader.DataLoader(pictures, collate_fn=collate, **options),
        "reader, decoded pictures cached": reader.DataLoader(cached, collate_fn=collate, **options),
    }


class _UsualPictures:
    def __init__(self, annotations: list[Any]) -> None:
        self._annotations = annotations

    def __len__(self) -> int:
        return len(self._annotations)

    def __getitem__(self, index: int) -> Any:
        import torch
        from PIL import Image

        path, found, labels = self._annotations[index]
        image = Image.open(path).convert("RGB")
        boxes = torch.tensor(found) * torch.tensor([SIDE / image.width, SIDE / image.height] * 2)
        image = image.resize((SIDE, SIDE), Image.Resampling.BILINEAR)
        pixels = torch.from_numpy(np.asarray(image).copy()).permute(2, 0, 1).float().div(255)
        if torch.rand(1) < 0.5:
            pixels = pixels.flip(2)
            left, top, right, bottom = boxes.unbind(1)
            boxes = torch.stack([SIDE - right, top, SIDE - left, bottom], 1)
        mean, std = torch.tensor(MEAN)[:, None, None], torch.tensor(STD)[:, None, None]
        return pixels.sub(mean).div(std), boxes, torch.tensor(labels)


def _lists(samples: list[Any]) -> Any:
    import torch

    images, boxes, labels = zip(*samples)
    return torch.stack(images), list(boxes), list(labels)


_AUGMENT = Compose(
    [Resize((SIDE, SIDE)), RandomHorizontalFlip(), Normalize(MEAN, STD)], layout="channels_first"
)


class _Pictures(reader.Dataset[Any]):
    def __init__(self, annotations: list[Any]) -> None:
        self.annotations = reader.share(annotations)

    def __len__(self) -> int:
        return len(self.annotations)

    def __getitem__(self, index: int) -> Any:
        return augment(self.annotations[index], index)


class _Decoded(_Pictures):
    def __getitem__(self, index: int) -> Any:
        path, boxes, labels = self.annotations[index]
        return decode(path), boxes, labels


def augment(sample: Any, index: int) -> Any:
    """Return a picture and its boxes, resized and perhaps turned over, and the labels."""
    image, boxes, labels = sample
    made, found = _AUGMENT.apply(image, reader.sample_rng(index), boxes=boxes)
    return made, found["boxes"].astype(np.float32), np.array(labels)


# -- audio --------------------------------------------------------------------------------------


def audio(root: Path) -> Loaders:
    """Return loaders of clips of sound."""
    from torch.nn.utils.rnn import pad_sequence
    from torch.utils.data import DataLoader

    rng = np.random.default_rng(0)
    paths = []
    for number in range(512):
        paths.append(str(root / f"{number}.wav"))
        with wave.open(paths[-1], "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(RATE)
            file.writeframes(rng.integers(-20_000, 20_000, 10 * RATE).astype(np.int16).tobytes())
    options: dict[str, Any] = {"batch_size": 32, "num_workers": WORKERS, "persistent_workers": True}

    def padded(samples: Any) -> Any:
        return pad_sequence(samples, batch_first=True), [len(sample) for sample in samples]

    clips = _Clips(paths)
    return {
        "PyTorch, whole files, float32": DataLoader(
            _UsualClips(paths),  # type: ignore[arg-type]
            collate_fn=padded,
            **options,
        ),
        "reader, int16": reader.DataLoader(clips, collate_fn=Pad(lengths=True), **options),
        "reader, int16, threads": reader.DataLoader(
            clips, collate_fn=Pad(lengths=True), worker_type="thread", **options
        ),
    }


class _UsualClips:
    def __init__(self, paths: list[str]) -> None:
        self._paths = paths

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        import torch

        with wave.open(self._paths[index]) as file:
            content = np.frombuffer(file.readframes(file.getnframes()), np.int16)
        sound = torch.from_numpy(content.astype(np.float32) / 32768)
        begin = int(torch.randint(max(1, len(sound) - LENGTH), ()))
        return sound[begin : begin + LENGTH]


class _Clips(reader.Dataset[Any]):
    def __init__(self, paths: list[str]) -> None:
        self.paths = reader.share(paths)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> Any:
        with wave.open(self.paths[index]) as file:
            begin = reader.sample_rng(index).integers(max(1, file.getnframes() - LENGTH + 1))
            file.setpos(int(begin))
            return np.frombuffer(file.readframes(LENGTH), np.int16)


if __name__ == "__main__":
    raise SystemExit(main())
