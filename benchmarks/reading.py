"""Draw sixty sentences and sixty names at random, for a reader who has never seen the program.

The reader restates each in other words without the source; whoever knows the source then counts what was misunderstood.
`--key` prints where each stands, for counting. The bar, at most three misunderstood at the first reading of an unseen
sample, is a person's to judge: seeds and lists are in `docs/proofs.md`.
"""

import argparse
import ast
import random
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import click

from pramana.show.cli import COMMANDS

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "pramana"
GENERATED = {"cli.md", "claims.md"}
"""Pages that repeat what stands elsewhere: help texts, and titles of proofs."""
PER_GROUP = 15
PER_KIND = 12


class Drawn(NamedTuple):
    """One thing to restate: what the reader sees, and where it stands."""

    shown: str
    place: str


def main() -> int:
    """Print a sample; return 0."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--key", action="store_true", help="print where each stands, too")
    options = parser.parse_args()
    chooser = random.Random(options.seed)
    for title, groups, size in (
        ("Sentences", {"help": help_lines, "docs": doc_sentences, "error": messages, "page": page_texts}, PER_GROUP),
        ("Names", {kind: lambda kind=kind: names(kind) for kind in KINDS}, PER_KIND),
    ):
        print(f"## {title}, seed {options.seed}\n")
        number = 0
        for group, collect in groups.items():
            candidates = {drawn.shown.partition("`: ")[2] or drawn.shown: drawn for drawn in sorted(collect())}
            for drawn in chooser.sample(list(candidates.values()), size):
                number += 1
                print(f"{number}. ({group}) {drawn.shown}" + (f"  [{drawn.place}]" if options.key else ""))
        print()
    return 0


# ── Sentences ──


def help_lines() -> Iterator[Drawn]:
    """Yield the help of each option, and the sentences of each command's."""

    def walk(path: str, command: click.Command) -> Iterator[Drawn]:
        for sentence in split_sentences(re.sub(r"\x08.*", "", command.help or "", flags=re.DOTALL)):
            yield Drawn(f"`{path} --help`: {sentence}", path)
        for parameter in command.params:
            if text := getattr(parameter, "help", None):
                yield Drawn(f"`{path} {'/'.join(parameter.opts)}`: {text}", path)
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(f"{path} {name}", inner)

    for name, (target, *_) in COMMANDS.items():
        module, _, attribute = target.partition(":")
        yield from walk(f"pramana {name}", getattr(import_module(module), attribute))


def doc_sentences() -> Iterator[Drawn]:
    """Yield the sentences of the docs and the README, without code, tables, headings and fragments."""
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if page.name in GENERATED:
            continue
        text = re.sub(r"^(```|:::|~~~).*?^(```|:::|~~~)\s*$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
        for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.)\s)", text):
            if not paragraph.lstrip().startswith(("#", "|", "<", ">", "!", "---", "(")):
                for sentence in split_sentences(re.sub(r"^\s*(?:[-*]|\d+\.)\s+", "", paragraph)):
                    if sentence.endswith((".", "!", "?", ":")):
                        yield Drawn(sentence, page.name)


def messages() -> Iterator[Drawn]:
    """Yield every text of the program that is not on a page, in help or in a docstring."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "/show/web/" not in path.as_posix() and "/show/cli/" not in path.as_posix():
            yield from _texts(path, 5)


def page_texts() -> Iterator[Drawn]:
    """Yield the texts of the workbench."""
    for path in sorted((SOURCE / "show" / "web").rglob("*.py")):
        yield from _texts(path, 3)


def split_sentences(text: str) -> list[str]:
    """Return the sentences of at least four words of a paragraph."""
    joined = re.sub(r"\s+", " ", text).strip()
    return [each for each in re.split(r"(?<=[.!?])\s+(?=[A-Z`*])", joined) if len(each.split()) >= 4]


def _texts(path: Path, least_words: int) -> Iterator[Drawn]:
    tree = ast.parse(path.read_text())
    not_prose: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            not_prose.update(map(id, node.values))
        elif isinstance(node, ast.Expr):
            not_prose.add(id(node.value))
        elif isinstance(node, ast.keyword) and node.arg in {"class_", "style"}:
            not_prose.update(map(id, ast.walk(node.value)))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", None) in {"classes", "props", "style"}:
            not_prose.update(id(each) for argument in node.args for each in ast.walk(argument))
    for node in ast.walk(tree):
        text = ""
        if isinstance(node, ast.JoinedStr) and id(node) not in not_prose:
            text = ast.unparse(node)[2:-1]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in not_prose:
            text = node.value
        code = re.search(r"[;{<]\s*$|=\"|SELECT |UPDATE |[a-z-]+: [^;]+;|\\b|\(\?|^btn ", text)
        if len(text.split()) >= least_words and re.search(r"[a-z]{3} [a-z]", text) and not code:
            line = getattr(node, "lineno", 0)
            yield Drawn(re.sub(r"\s+", " ", text).strip(), f"{path.relative_to(ROOT)}:{line}")


# ── Names ──

KINDS = ("function", "class", "constant", "attribute", "parameter")


def names(kind: str) -> Iterator[Drawn]:
    """Yield the names of one kind in `src/`, each with its module and what a signature shows."""
    for path in sorted(SOURCE.rglob("*.py")):
        module = path.relative_to(SOURCE).as_posix()
        for node, owner in _walk(ast.parse(path.read_text()), ""):
            for shown in _named(node, owner, kind):
                yield Drawn(f"{module}: {shown}", f"{path.relative_to(ROOT)}:{node.lineno}")


def _walk(tree: ast.AST, owner: str) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield node, owner
            yield from _walk(node, node.name)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.AnnAssign | ast.Assign):
            yield node, owner


def _named(node: ast.stmt, owner: str, kind: str) -> Iterator[str]:
    of = f"{owner}." if owner else ""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("__"):
        signature = f"{node.name}({ast.unparse(node.args)})"
        if kind == "function":
            yield of + signature + (f" -> {ast.unparse(node.returns)}" if node.returns else "")
        elif kind == "parameter":
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if each.arg not in {"self", "cls"}:
                    yield f"`{each.arg}` in {of}{signature}"
    elif isinstance(node, ast.ClassDef) and kind == "class":
        yield f"class {node.name}({', '.join(ast.unparse(base) for base in node.bases)})"
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        if kind == ("attribute" if owner else "constant"):
            yield f"{of}{node.target.id}: {ast.unparse(node.annotation)}"
    elif isinstance(node, ast.Assign) and kind == "constant" and not owner:
        for target in node.targets:
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                yield f"{target.id} = {ast.unparse(node.value)[:60]}"


if __name__ == "__main__":
    raise SystemExit(main())
