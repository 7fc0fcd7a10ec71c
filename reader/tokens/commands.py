"""`python -m reader tokens`: files of tokens from texts.

Imports what the command needs when it runs.
"""

from __future__ import annotations

from typing import Any

from reader.shards.commands import can_show_bar, run_command

__all__ = ["add_tokens"]


def add_tokens(commands: Any) -> None:
    """Add the command to a parser's."""
    tokens = commands.add_parser(
        "tokens",
        help="make a file of tokens from texts, for language models",
        description=(
            "Write the tokens of texts as a file that reader.Documents, reader.TokenWindows and"
            " Megatron read. The order is that of the texts, and the bytes are the same for any"
            " number of processes. A run that was ended is started again with the same arguments:"
            " it goes on where the other stopped. Beside the output a file .tokens.json says"
            " what it was made of."
        ),
    )
    tokens.add_argument(
        "path",
        nargs="+",
        help=(
            "texts (.txt, .md), each a document; or what reader.Shards reads, such as JSON lines,"
            ' also compressed, Parquet, and patterns, such as "part-{00..99}.jsonl.gz"'
        ),
    )
    tokens.add_argument(
        "--tokenizer",
        required=True,
        metavar="NAME",
        help=(
            "a tokenizer.json of Hugging Face, or a folder with one; a .model of SentencePiece; an"
            ' encoding of tiktoken, such as gpt2; or "bytes", which needs no library'
        ),
    )
    tokens.add_argument(
        "--output",
        required=True,
        metavar="PATH",
        help="begins the names of the files: corpus of corpus.bin and corpus.idx",
    )
    tokens.add_argument(
        "--format",
        default="megatron",
        help="megatron (.bin and .idx), flat, or llmc: shards with a header; megatron by default",
    )
    tokens.add_argument("--field", default="text", help='with the text of a sample; else "text"')
    for name, place in (("end", "behind"), ("begin", "before")):
        tokens.add_argument(
            f"--document-{name}",
            metavar="TOKEN",
            help=f"a token {place} each document, by its number or name, such as <|endoftext|>",
        )
    tokens.add_argument("--dtype", help="of the tokens; else the smallest usual one: uint16, int32")
    tokens.add_argument(
        "--shard-tokens",
        type=int,
        metavar="N",
        help="how many tokens a file has at most; of llmc 100,000,000, else there is one file",
    )
    tokens.add_argument(
        "--num-workers", type=int, metavar="N", help="processes; else one for each core"
    )
    tokens.set_defaults(run=lambda options: run_command("tokens", _tokens, options))


def _tokens(options: Any) -> int:
    from reader.cores import usable_cores
    from reader.tokens.write_tokens import Options, write_tokens

    workers = options.num_workers
    if workers is None:
        workers = max(1, int(usable_cores()))
    asked = Options(**{name: getattr(options, name) for name in Options._fields})
    documents, tokens = write_tokens(options.path, options.output, asked, workers, can_show_bar())
    print(f"{documents:,} documents, {tokens:,} tokens: {options.output}")
    return 0
