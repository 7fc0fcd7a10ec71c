"""Find the files of a folder of classes by their names, in torchvision's order.

Imports the errors, and files by their paths. Reads folders, and the first bytes of files
that macOS may have added. Keeps no state.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from reader.errors import ConfigError, ConfigTypeError, got, printable
from reader.stores.files import Files
from reader.stores.paths import identities_above
from reader.stores.urls import is_url

__all__ = ["EXTENSIONS", "find_classes", "find_samples"]

# torchvision's, so that a program lists the same files
EXTENSIONS = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
# image endings that torchvision does not list: a warning names such files
_OTHER_IMAGES = (
    *(".avif", ".dib", ".gif", ".heic", ".heif", ".ico", ".j2k", ".jfif", ".jp2", ".jpe", ".jxl"),
    *(".pbm", ".pnm", ".svg", ".tga"),
)
_MACOS_FOLDER = "__MACOSX"  # macOS adds it to archives
_APPLE_DOUBLE = b"\0\5\x16\7"  # the first bytes of macOS's files ._name


def _as_endings(extensions: str | Sequence[str]) -> tuple[str, ...]:
    """Return endings in lower case. ConfigTypeError: not one string, and no sequence of them."""
    is_one = isinstance(extensions, str) or not isinstance(extensions, Iterable)
    endings: tuple[Any, ...] = (extensions,) if is_one else tuple(extensions)
    if not endings or not all(isinstance(ending, str) and ending for ending in endings):
        raise ConfigTypeError(
            f'extensions must be endings of file names, such as (".jpg", ".png"), got'
            f" {got(extensions)}"
        )
    return tuple(ending.lower() for ending in endings)


def find_classes(root: str, files: Files) -> tuple[list[str], dict[str, int]]:
    """Return the names of the folders in a folder, sorted, and the number of each.

    Args:
        root: the folder.
        files: how it is read.

    Raises:
        ConfigError: there is no such folder, or no folder in it.
    """
    try:
        names = files.folders(root)
    except ConfigError:  # a ValueError, too
        raise
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: of a name with a NUL
        raise ConfigError(
            f"no folder '{root}': pass the folder that holds one folder per class"
        ) from None
    if _MACOS_FOLDER in names:
        names.remove(_MACOS_FOLDER)
        warnings.warn(
            f"'{root}' has a folder {_MACOS_FOLDER}, which is no class: it is what macOS adds to"
            " archives. Remove it",
            stacklevel=4,
        )
    if not names:
        raise ConfigError(f"'{root}' holds no folder: put the images in one for each class")
    return names, {name: number for number, name in enumerate(names)}


def find_samples(
    root: str,
    class_to_idx: dict[str, int],
    extensions: str | Sequence[str] | None,
    is_valid_file: Callable[[str], bool] | None,
    allow_empty: bool,
    files: Files,
) -> list[tuple[str, int]]:
    """Return (path, class number) of each file of the classes; warn of files that are left out.

    Args:
        root: the folder with a folder for each class.
        class_to_idx: their numbers, by name.
        extensions: endings of the files, in either case; None: EXTENSIONS, with a warning of other
            images.
        is_valid_file: called with each path instead of checking its ending; None: check endings.
        allow_empty: whether a class may be without files.
        files: how folders are read.

    Raises:
        ConfigError: there are classes without files, or a folder cannot be read.
    """
    endings = EXTENSIONS if extensions is None else _as_endings(extensions)
    found = _Search(root, endings, is_valid_file, extensions is None, files)
    samples: list[tuple[str, int]] = []
    empty: list[str] = []
    for name in sorted(class_to_idx):
        paths = found.below(_joined_path(root, name))
        samples += [(path, class_to_idx[name]) for path in paths]
        if not paths:
            empty.append(name)
    if empty and not allow_empty:
        wanted = "that is_valid_file takes" if is_valid_file else f"that ends in {_joined(endings)}"
        raise ConfigError(
            f"of {len(class_to_idx)} classes in '{root}' {len(empty)} have no file {wanted}:"
            f" {_joined(empty)}{found.other_kinds()}. Put their images there, remove the folders,"
            " or pass allow_empty=True"
        )
    found.warn()
    return samples


class _Search:
    """Finds files below folders, and notes the files that it leaves out.

    Args:
        root: the folder of the classes' folders.
        endings: of the names of the files, in lower case.
        is_valid_file: as for `find_samples`.
        tells_others: whether to note images of other endings.
        files: how folders are read.
    """

    def __init__(
        self,
        root: str,
        endings: tuple[str, ...],
        is_valid_file: Callable[[str], bool] | None,
        tells_others: bool,
        files: Files,
    ) -> None:
        self._files = files
        self._tells_others = tells_others
        self._root = root
        self._endings = endings
        self._is_valid_file = is_valid_file
        self._loops: list[str] = []  # links to a folder that they lie in
        self._macos: list[str] = []
        self._others: list[str] = []  # images with other endings
        self._above = None if is_url(root) else identities_above(root)

    def below(self, folder: str) -> list[str]:
        """Return the paths of the files below a folder: folders by name, and the files of each."""
        if not is_url(folder) and not Path(folder).is_dir():
            return []
        names, loops = self._files.tree(folder, self._above)
        self._loops += loops
        paths: list[str] = []
        for inner in sorted(names):
            for name in sorted(names[inner]):
                path = _joined_path(inner, name)
                if self._takes(name, path):
                    paths.append(path)
        return paths

    def _takes(self, name: str, path: str) -> bool:
        if self._is_valid_file is not None:
            return bool(self._is_valid_file(path))
        lower = name.lower()
        if not lower.endswith(self._endings):
            if self._tells_others and lower.endswith(_OTHER_IMAGES):
                self._others.append(path)
            return False
        if name.startswith("._") and self._is_apple_double(path):
            self._macos.append(path)
            return False
        return True

    def _is_apple_double(self, path: str) -> bool:
        try:
            return self._files.head(path, len(_APPLE_DOUBLE)) == _APPLE_DOUBLE
        except OSError:
            return False  # reading the image raises the error

    def other_kinds(self) -> str:
        """Return a part of a message: how many images of other endings there are."""
        others = self._others
        return f"; {len(others)} have other endings, such as '{others[0]}'" if others else ""

    def warn(self) -> None:
        """Warn of files that were left out, with counts and names."""
        said = []
        if self._others:
            kinds = sorted({Path(path).suffix.lower() for path in self._others})
            said.append(
                f"{_counted(self._others, 'file')} {_joined(kinds)} left out, such as"
                f" '{self._others[0]}': torchvision leaves them out, too. Pass extensions= to"
                " list them, or to leave them out without a warning"
            )
        if self._macos:
            said.append(
                f"{_counted(self._macos, 'file')} ._name left out, such as '{self._macos[0]}':"
                " macOS adds them, and they hold no image. Remove them"
            )
        if self._loops:
            said.append(
                f"{_counted(self._loops, 'link')} not followed, such as '{self._loops[0]}': they"
                " lead back to a folder that they lie in. Remove them"
            )
        for text in said:
            warnings.warn(printable(f"ImageFolder of '{self._root}': {text}"), stacklevel=4)


def _joined_path(folder: str, name: str) -> str:
    between = "" if folder.endswith(os.sep) else os.sep
    return f"{folder}{between}{name}"  # as torchvision's: pathlib drops "./"


def _counted(found: Sequence[Any], noun: str) -> str:
    return f"1 {noun}" if len(found) == 1 else f"{len(found):,} {noun}s"


def _joined(names: Sequence[str], most: int = 10) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
