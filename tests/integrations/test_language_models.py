"""The programs of docs/language-models.md that train by transformers, TRL and Megatron-LM.

Runs where these are installed: `make integrations`, and `make shard-libraries` for Megatron.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Documents, PackedTokens
from tests.pages import programs_of, run_program
from tests.token_files import megatron

pytestmark = [
    pytest.mark.evidence,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore"),
]
MAKE = "make integrations"


def run(word: str, folder: Path, library: str, **replaced: str) -> None:
    """Run the page's one program that has a word in it."""
    (code,) = [each.code for each in programs_of("language-models") if word in each.code]
    for old, new in replaced.items():
        assert old in code
        code = code.replace(old, new)
    found = importlib.util.find_spec(library)
    assert found is not None
    assert found.submodule_search_locations
    done = run_program(code, folder, Path(next(iter(found.submodule_search_locations))).parent)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a tiny model, its tokenizer of letters, and chats."""
    transformers = pytest.importorskip("transformers", reason=MAKE)
    tokenizers = pytest.importorskip("tokenizers", reason=MAKE)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    transformers.utils.logging.disable_progress_bar()  # whose thread would stay
    letters = ["<pad>", "<eos>", *map(chr, range(32, 127))]
    words = {letter: number for number, letter in enumerate(letters)}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token=" "))
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="<eos>"
    )
    tokenizer.save_pretrained(tmp_path / "model")
    model_of(len(letters)).save_pretrained(tmp_path / "model")
    rng = np.random.default_rng(0)
    lines = [
        {"prompt": "q" * int(rng.integers(5, 60)), "completion": "a" * int(rng.integers(3, 1500))}
        for _ in range(60)
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "chats.jsonl").write_text(text, encoding="utf-8")
    return tmp_path


def model_of(vocabulary: int) -> Any:
    transformers = pytest.importorskip("transformers", reason=MAKE)
    config = transformers.LlamaConfig(
        vocab_size=vocabulary,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=1024,
        pad_token_id=0,
        eos_token_id=1,
    )
    return transformers.LlamaForCausalLM(config)


def test_the_program_of_trl_runs(chats: Path) -> None:
    pytest.importorskip("trl", reason=MAKE)
    run("SFTTrainer", chats, "trl", **{'report_to="none",': 'report_to="none", use_cpu=True,'})


def test_what_replaces_the_program_of_trl_runs(chats: Path) -> None:
    run("AutoModelForCausalLM", chats, "transformers")


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_documents_of_a_row_attend_to_themselves_alone(attention: str) -> None:
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = model_of(256).train()
    model.set_attn_implementation(attention)
    rng = np.random.default_rng(0)
    documents = Documents([rng.integers(2, 256, count) for count in rng.integers(2, 50, 60)])
    rows = PackedTokens(documents, 64, seed=1, fields=["tokens", "positions", "segments"])
    batch = next(iter(DataLoader(rows, batch_size=4, framework="torch")))
    tokens, segments = batch["tokens"], batch["segments"]
    inputs = {"input_ids": tokens, "position_ids": batch["positions"]}
    with torch.no_grad():
        packed = model(**inputs, use_cache=False).logits
        cached = model(**inputs).logits
        mask = (segments[:, :, None] == segments[:, None, :]) & torch.ones(64, 64).tril().bool()
        if attention == "sdpa":
            masked = model(**inputs, attention_mask=mask[:, None]).logits
            torch.testing.assert_close(masked[segments >= 0], packed[segments >= 0])
        for row in range(4):
            for number in range(int(segments[row].max()) + 1):
                here = segments[row] == number
                alone = model(input_ids=tokens[row][here][None]).logits[0]
                torch.testing.assert_close(packed[row][here], alone)
    # While this holds the page has to warn of the cache.
    assert (cached - packed)[segments >= 0].abs().max() > 0.01


def test_a_model_takes_targets_as_labels_that_are_moved_already() -> None:
    torch = pytest.importorskip("torch")
    model = model_of(256)
    rows = PackedTokens([np.arange(2, 40)], 64, fields=["tokens", "positions", "targets"])
    batch = next(iter(DataLoader(rows, batch_size=1, framework="torch")))
    targets = batch["targets"]
    found = model(
        input_ids=batch["tokens"],
        position_ids=batch["positions"],
        use_cache=False,
        labels=targets,
        shift_labels=targets,
    )
    wanted = torch.nn.functional.cross_entropy(found.logits.flatten(0, 1), targets.flatten())
    torch.testing.assert_close(found.loss, wanted)


def test_the_program_of_megatron_runs(tmp_path: Path) -> None:
    if importlib.util.find_spec("megatron") is None:
        pytest.skip("make shard-libraries")
    rng = np.random.default_rng(0)
    for name in ("web", "code"):
        lists = [[*rng.integers(1, 256, count).tolist(), 0] for count in range(20, 2000, 20)]
        megatron(tmp_path / name, lists, "uint16")
    text = """
class Tokenizer:
    eod, pad, vocab_size = 0, 1, 256
    unique_identifiers = {"class": "Tokenizer"}
tokenizer = Tokenizer()
"""
    (tmp_path / "mine.py").write_text(text, encoding="utf-8")
    joined = 'init_process_group("gloo", "file://{}/group", rank=0, world_size=1)'
    run(
        "BlendedMegatronDatasetBuilder",
        tmp_path,
        "megatron",
        **{'init_process_group("gloo")': joined.format(tmp_path)},
    )
