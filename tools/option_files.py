"""Count, for each option of the table in `reader.config`, the files that name it.

A file names an option where its code has that name: as attribute, keyword, parameter, field or
string; messages and docstrings do not count. Readers are those beside the table and the faces.
`_OTHERS` says where the same word is another thing. Run as ``python -m
tools.option_files``; ``--files`` lists the files, too.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from reader.config import OPTIONS

ROOT = Path(__file__).resolve().parent.parent

# what has arguments or attributes of its own by these names
_SAMPLERS = (
    r"reader/(data|streams|orders|formats|random)/|compat/\w+/(\w*samplers?|batch)\.py|/nlp/"
)
_PADDLE = r"compat/paddle/(generator|feeding|py_reader|dataset_loader|source|fields|ragged|slots)"
_OTHERS = {
    "feed_list": _PADDLE,
    "places": _SAMPLERS + "|" + _PADDLE + r"|(stage|map_source|sample_form|layout|permutation"
    r"|global_rng_lock|places|indices|leaves|structure|values|stack|iterator)\.(py|pyx|pxd|h)$",
    "return_list": _PADDLE,
    "batch_sampler": _SAMPLERS + r"|/engine/(engine|state|face|undivided)\.py|begun_ahead|/saved",
    "batch_size": _SAMPLERS + "|" + _PADDLE + r"|indices\.p|worker/stream|worker_cursors|order\.py",
    "shuffle": _SAMPLERS + r"|paddle/reader\.py",
    "drop_last": _SAMPLERS + "|" + _PADDLE + r"|/(stack|indices|channel|stream)\.p|torch/order",
    "collate_fn": r"\.pyx|\.pxd",
    "timeout": r"reader/(cluster|processes)/|\.pyx|\.pxd|backend\.py|gluon/errors|torch/errors",
    "sampler": _SAMPLERS + r"|/engine/(engine|state|face|undivided)\.py|begun_ahead|/saved",
    "seed": _SAMPLERS + r"|reader/(images|caching|cluster)/|\.(pyx|pxd|h)$|compat/\w+/(worker|draws"
    r"|inner)\.py|rng\.py|context\.py|library_info",
    "reseed": r"worker/(rng|stream|random_watch)\.py|\.(pyx|pxd|h)$",
    "start_method": r"worker_pool|shared_workers|reader/processes/",
    "pool": r"\.(pyx|pxd|h)$|reader/(cluster|processes|worker)/|/engine/(auto|epoch\w*)\.py"
    r"|observe/processors|backends/(pool|\w+_pool|shared\w*|remote\w*|worker\w*)\.py",
    "backend": r"reader/cluster/|/engine/(e\w+|supervisor|watchdog|auto)\.py|frameworks/jax"
    r"|observe/program",
    "max_bytes": r"worker_pool|shared_workers|\.pyx$",
    "framework": r"compat/paddle/(source|feeding)\.py|reader/(places|__main__)|packages",
    "num_workers": r"reader/(streams|worker)/(stream_wrapper|context|library_info|shard)|/nlp/"
    r"|compat/\w+/worker\.py|worker_pool|policy",
    "worker_type": r"worker/context|stream_wrapper",
    "quarantine": r"data/without",
}

# the table with its checks, and what takes the option from the user
_TABLE_AND_FACES = r"^reader/(config|option_checks|loader)\.py|^reader/compat/"


def _names_of_python(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, (ast.keyword, ast.arg)):
            found.add(node.arg or "")
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found.add(node.target.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words = node.value.split()
            if all(map(str.isidentifier, words)):  # a name, or a list of names
                found.update(words if len(words) < 2 or "_" in node.value else ())
    return found


def _names_of_cython(text: str) -> set[str]:
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    found: set[str] = set()
    try:
        found.update(each.string for each in tokens if each.type == tokenize.NAME)
    except (tokenize.TokenError, IndentationError, SyntaxError):
        bare = re.sub(r"#.*|//.*", "", re.sub(r'""".*?"""|"[^"\n]*"', "", text, flags=re.DOTALL))
        found.update(re.findall(r"\w+", bare))
    return found


def sources() -> Iterator[tuple[str, set[str]]]:
    """Yield each source by its path, with the names in its code."""
    for folder in ("reader", "cython_ext"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix == ".py":
                yield str(path.relative_to(ROOT)), _names_of_python(path.read_text("utf-8"))
            elif path.suffix in (".pyx", ".pxd"):
                yield str(path.relative_to(ROOT)), _names_of_cython(path.read_text("utf-8"))


def files_of() -> dict[str, list[str]]:
    """Return, for each option, the files that name it."""
    found: dict[str, list[str]] = {name: [] for name in OPTIONS}
    for path, names in sources():
        for name in names & OPTIONS.keys():
            others = _OTHERS.get(name)
            if others is None or not re.search(others, path):
                found[name].append(path)
    return found


def main(arguments: list[str]) -> int:
    """Print the table: how many files in all, and how many are neither the table nor a face."""
    counts = files_of()
    print(f"{'option':24} files  readers")
    readers = 0
    for name, files in counts.items():
        rooms = [path for path in files if not re.search(_TABLE_AND_FACES, path)]
        readers += len(rooms)
        print(f"{name:24} {len(files):5}  {len(rooms):7}")
        if "--files" in arguments:
            print("".join(f"    {path}\n" for path in files), end="")
    total = sum(map(len, counts.values()))
    print(f"{'in all':24} {total:5}  {readers:7}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
