"""Every example of the documents runs, and prints what its page says.

Those that need a library of another environment run there: tests/integrations/, tests/cluster/.
"""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tqdm import tqdm

import reader
from tests.pages import DOCS, fences, programs_of, run_program

ROOT = DOCS.parent
PAGES = [
    page
    for page in [ROOT / "README.md", *sorted(DOCS.rglob("*.md"))]
    if "```python" in page.read_text(encoding="utf-8")
]
WITH_PROGRAMS = [
    "../README",
    *(
        str(page.relative_to(DOCS).with_suffix(""))
        for page in sorted(DOCS.rglob("*.md"))
        if "```py\n" in page.read_text(encoding="utf-8")
    ),
]
# Pages whose programs are run elsewhere, and where.
ELSEWHERE = {
    "checkpoints": "tests/tools/test_checkpoints.py",
    "cluster": "tests/cluster/test_page.py",
    "integrations": "tests/integrations/test_page.py",
    "many-ranks": "tests/tools/test_many_ranks.py",
    "profile": "tests/tools/test_profile_page.py",
}
# The names that the programs of a page use.
GIVEN = {
    "audio": """
import wave
paths = [f"{number}.wav" for number in range(64)]
for number, path in enumerate(paths):
    with wave.open(path, "wb") as file:
        file.setparams((1, 2, 16_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * 8_000 * (number % 8 + 1)))
""",
    "detection": """
from PIL import Image
annotations = []
for number in range(32):
    Image.new("RGB", (640, 480), (7 * number, 90, 120)).save(f"{number}.jpg")
    boxes = [[10.0 * k, 20, 100, 200 + k] for k in range(1 + number % 3)]
    annotations.append({"path": f"{number}.jpg", "boxes": boxes, "labels": [0] * len(boxes)})
""",
    "devices": """
import numpy
import torch
dataset = [(numpy.ones(3, "float32"), number) for number in range(128)]
model = torch.nn.Linear(3, 1)
""",
    "images": """
import pathlib
import numpy
from PIL import Image
from reader.images import ImageFolder, RandomResizedCrop
root, mean, std = "photos", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
transforms = [RandomResizedCrop()]
for number in range(64):
    path = pathlib.Path(root, "ab"[number % 2], f"{number}.jpg")
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = numpy.random.default_rng(number).integers(0, 256, (300, 400, 3), numpy.uint8)
    Image.fromarray(pixels).save(path)
""",
    "language-models": """
import pathlib, numpy
from tests.token_files import megatron
rng = numpy.random.default_rng(0)
tokens = rng.integers(0, 50256, 200_000)
tokens[rng.integers(0, len(tokens), 800)] = 50256
tokens.astype("uint16").tofile("train.bin")
for name in ("web", "code"):
    megatron(pathlib.Path(name), [rng.integers(1, 256, count) for count in range(20, 2000, 20)])
pathlib.Path("model.py").write_text('''
import torch

class GPTConfig:
    vocabulary, width = 64, 8

class GPT(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embedding = torch.nn.Embedding(config.vocabulary, config.width)
        self.head = torch.nn.Linear(config.width, config.vocabulary)

    def forward(self, tokens, targets, positions=None, segments=None):
        scores = self.head(self.embedding(tokens % 64)).flatten(0, 1)
        targets = torch.where(targets < 0, targets, targets % 64).flatten()
        return scores, torch.nn.functional.cross_entropy(scores, targets)
''')
""",
    "tables": """
import numpy, pandas
table = {f"f{number}": numpy.ones(10_000, "float32") for number in range(32)}
pandas.DataFrame(table | {"label": numpy.arange(10_000) % 2}).to_parquet("rows.parquet")
""",
    "text": """
import numpy
numpy.arange(100_000).astype("uint16").tofile("tokens.bin")
""",
}
_DEVICES = (
    ('"cuda:0", "cuda:1"', '"cpu", "cpu"'),
    ('"cuda:0"', '"cpu"'),
    ('"gpu:0"', '"cpu"'),
    ("CUDAPlace(0)", "CPUPlace()"),
)
# The loader that a program made gives all of its batches, or a dataset its samples.
_USED = """
if "loader" in globals():
    for _ in loader: pass
elif "training" in globals():
    list(training)
"""

with tqdm.get_lock():  # a semaphore, which tqdm keeps until the process ends
    pass


@pytest.mark.timeout(180)  # a page may train, and import each framework
@pytest.mark.filterwarnings("ignore:To copy construct from a tensor:UserWarning")  # Paddle's `fit`
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_examples_of_a_page_print_what_it_says(page: Path) -> None:
    blocks = list(fences(page.read_text(encoding="utf-8")))
    code = "".join(content for _, language, content in blocks if language == "python")
    if "import torch" in code:
        pytest.importorskip("torch")
    if "import pyarrow" in code:
        pytest.importorskip("pyarrow")
    names = example_names()
    with own_static_graph() if "import paddle" in code else nullcontext():
        for number, (line, language, content) in enumerate(blocks):
            if language != "python":
                continue
            printed = io.StringIO()
            # as many empty lines as there are above: a traceback names the page's own line
            source = compile("\n" * line + content, str(page), "exec")
            with redirect_stdout(printed):
                exec(source, names)
            _, language, expected = [*blocks, (0, "", "")][number + 1]
            if language == "text":
                assert printed.getvalue() == expected, f"{page.name}:{line}"
    names.clear()  # as a module's at exit: loaders in it keep its classes, and those the module


@contextmanager
def own_static_graph() -> Iterator[None]:
    """Let an example of a static graph leave nothing in paddle's global program and scope."""
    paddle = pytest.importorskip("paddle")
    program, scope = paddle.static.Program(), paddle.static.Scope()
    with paddle.static.program_guard(program), paddle.static.scope_guard(scope):
        yield
    scope.erase(scope.local_var_names())  # paddle keeps every scope, and with it what was fed last


def example_names() -> dict[str, Any]:
    """Names that an example may take for given, as those of the README do."""
    dataset = [(np.zeros((3, 8, 8), np.float32), i) for i in range(128)]
    return {"__name__": "example", "dataset": dataset, "train": lambda images, labels: None}


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("page", "number"),
    [
        (page, number)
        for page in WITH_PROGRAMS
        if page not in ELSEWHERE
        for number in range(len(programs_of(page)))
    ],
)
def test_a_program_of_a_page_runs_and_prints_what_it_says(
    page: str, number: int, tmp_path: Path
) -> None:
    program = programs_of(page)[number]
    code = program.code
    named = re.findall(r"^(?:import|from) (\w+)", code, re.MULTILINE)
    absent = {name for name in named if find_spec(name) is None}
    if absent & {"datasets", "megatron", "torchvision", "transformers", "trl"}:
        return  # tests/integrations/
    if absent and absent <= {"jax", "paddle", "torch"}:  # make matrix, where a Python has none
        pytest.skip(f"{absent} is not installed")
    if program.printed is None:
        for device in _DEVICES:  # which are not here
            code = code.replace(*device)
        code = GIVEN[page] + code + _USED
    run = run_program(code, tmp_path)
    assert run.returncode == 0, f"{page}.md: {run.stderr}"
    assert run.stdout == (program.printed or ""), page


def test_the_readme_begins_with_a_program_that_says_what_it_prints() -> None:
    (program,) = programs_of("../README")
    assert program.printed
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert text.index("pip install .") < text.index("```py\n") < text.index("```python\n")
    for _, language, code in fences(text):
        imports = re.findall(r"^(?:from|import) .*\bDataLoader\b", code, re.MULTILINE)
        assert language != "python" or len(imports) <= 1, "one import of a loader in a block"


def test_programs_for_other_environments_run() -> None:
    for page, test in ELSEWHERE.items():
        assert page in WITH_PROGRAMS
        assert page in (ROOT / test).read_text(encoding="utf-8")


@contextmanager
def programs_of_contributing(word: str) -> Iterator[tuple[ModuleType, str]]:
    """Run the program that has a word in it as a module; yields that and what it printed."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    code = next(each for _, language, each in fences(text) if language == "python" and word in each)
    module = sys.modules["of_contributing"] = ModuleType("of_contributing")
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            exec(code, module.__dict__)
        yield module, printed.getvalue()
    finally:
        del sys.modules["of_contributing"]


def test_batches_of_ones_own_dataclass_are_as_contributing_says() -> None:
    with programs_of_contributing("class Pair") as (_, printed):
        assert printed
        assert f"```text\n{printed}```" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("workers", [0, 2])
def test_the_face_of_contributing_is_complete(workers: int) -> None:
    with programs_of_contributing("a library called toy") as (toy, _):
        check_face(toy, workers)


def check_face(toy: ModuleType, workers: int) -> None:
    samples = [(np.full(2, number, np.float32), number) for number in range(10)]

    def epoch(loader: Any) -> list[list[int]]:
        return [batch.labels.tolist() for batch in loader]

    with toy.DataLoader(samples, 4, workers=workers) as loader:
        with loader.profile() as seen:
            assert epoch(loader) == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
        assert seen.batches == len(loader) == 3
        batches = iter(loader)
        assert type(next(batches)).__name__ == "Batch"
        state = loader.state_dict()
    with toy.DataLoader(samples, 4, workers=workers) as loader:
        loader.load_state_dict(state)
        assert epoch(loader) == [[4, 5, 6, 7], [8, 9]]
        assert len(epoch(toy.DataLoader(samples, 5, shuffled=True))) == 2
    for options, words in [({"size": 0}, "size must"), ({"workers": "a"}, "workers must")]:
        with pytest.raises((reader.ConfigError, reader.ConfigTypeError), match=words):
            toy.DataLoader(samples, **options)


def test_documents_name_every_public_error() -> None:
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    tree = re.search(
        r"\n    (ReaderError\(Exception\)\n.*?)\n\n?\"\"\"", errors_header(), re.DOTALL
    )
    assert tree is not None
    drawn = tree[1].replace("\n    ", "\n")
    assert drawn in text


def errors_header() -> str:
    from reader import errors

    return f'{errors.__doc__}"""'


def test_guide_and_decisions_are_linked() -> None:
    index = (ROOT / "docs/decisions/README.md").read_text(encoding="utf-8")
    for note in (ROOT / "docs/decisions").glob("[0-9]*.md"):
        title = note.read_text(encoding="utf-8").split("\n")[0].removeprefix("# ")
        assert f"[{title}]({note.name})" in index
