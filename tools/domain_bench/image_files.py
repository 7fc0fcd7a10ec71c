"""The JPEG files of the works on pictures, and their common decoding."""

from __future__ import annotations

from pathlib import Path

import numpy as np

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
WORKERS, BATCH, SIZE = 2, 64, (224, 224)


def make_files(folder: Path, count: int, scale: float) -> Path:
    """Write JPEG files into two folders; return the folder of both.

    They are parts of scikit-learn's two photographs, of about 500 x 375 pixels times `scale`.
    """
    from PIL import Image
    from sklearn.datasets import load_sample_images  # type: ignore[import-untyped, unused-ignore]

    photographs = [Image.fromarray(each) for each in load_sample_images().images]
    root, rng = folder / "files", np.random.default_rng(0)
    nbytes = 0
    for number in range(count):
        photograph = photographs[number % 2]
        part = rng.uniform(0.75, 1)
        width, height = (int(part * side) for side in photograph.size)
        left = int(rng.integers(photograph.width - width + 1))
        top = int(rng.integers(photograph.height - height + 1))
        sides = (int(scale * rng.integers(440, 561)), int(scale * rng.integers(330, 421)))
        image = photograph.crop((left, top, left + width, top + height)).resize(sides)
        path = root / "ab"[number % 2] / f"{number:05}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.save(path, quality=int(rng.integers(90, 96)))
        nbytes += path.stat().st_size
    print(f"{count} files of {nbytes / count / 1024:.0f} KiB in the mean")
    return root
