"""The input of a model of sound, beside the usual program under PyTorch.

Each loader makes the same batches, of the same files, with 2 workers. The programs are those of
docs/audio.md.
"""

from __future__ import annotations

import wave
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import reader
from reader.collate import Pad
from tools.domain_bench.work import Work, by_epochs, left_out

WORKERS, LENGTH, RATE = 2, 32_000, 16_000


def audio(folder: Path) -> Work:
    """Clips of files of sound, padded."""
    return by_epochs(_loaders(folder))


def _loaders(root: Path) -> Iterator[tuple[str, Iterable[Any]]]:
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
    with left_out("PyTorch"):
        from torch.utils.data import DataLoader as TorchLoader

        usual: Any = _UsualClips(paths)
        loader = TorchLoader(usual, collate_fn=_padded, **options)
        yield "PyTorch, whole files, float32", loader
    options["collate_fn"] = Pad(lengths=True)
    clips: Any = _Clips(paths)
    yield "reader, int16", reader.DataLoader(clips, **options)
    yield "reader, int16, threads", reader.DataLoader(clips, worker_type="thread", **options)


def _padded(samples: Any) -> Any:
    from torch.nn.utils.rnn import pad_sequence

    return pad_sequence(samples, batch_first=True), [len(sample) for sample in samples]


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
