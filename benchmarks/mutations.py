"""Do the loaders cope with malformed files? Mutates built-in files at random, 200,000 times.

Bar: each mutated document yields cases or problems; every problem has a message, a line that exists, a column on that
line or just behind it, and a caret at that very character; the loader raises no other exception; none takes a second.
Method: every built-in suite line and scenario, alone or in small documents, gets one to six seeded mutations of its
bytes, characters, lines, tokens, structure or encoding, or is spliced with another. Document n depends on the seed and
n alone, so `--show n` reproduces it. CPU time per document; two processes.
"""

import argparse
import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import yaml

import pramana
from pramana.errors import Problem
from pramana.load.problems import Problems
from pramana.load.scenario import read_scenarios
from pramana.load.suite import check_suite

PROCESSES, CHUNK, SECONDS, SHOWN = 2, 2_000, 1.0, 3
PACKAGE = Path(pramana.__file__).parent
BOM = b"\xef\xbb\xbf"

CHARACTERS = (
    *(
        "\x00",
        "\x07",
        "\x0b",
        "\x1b",
        "\x7f",
        "\x85",
        "\xa0",
        "\u200b",
        "\u2028",
        "\u2029",
        "\ufeff",
        "\ufffd",
        "\uffff",
    ),
    *(
        "\ue000",
        "😀",
        "é",
        "e\u0301",
        "ß",
        "İ",
        "ع",
        "語",
        "𝔘",
        "\t",
        "\r",
        "\n",
        "\r\n",
        "\\",
        '"',
        "'",
        "`",
        "%",
        "@",
    ),
)
TOKENS = (
    *(
        ":",
        ": ",
        ",",
        "-",
        "- ",
        "? ",
        "# ",
        "|",
        "|+9\n",
        ">",
        "[",
        "]",
        "{",
        "}",
        "[]",
        "{}",
        "&a ",
        "*a",
        "*b",
        "&a [*a]",
    ),
    *(
        "<<: *a",
        "!!int ",
        "!!binary ",
        "!x ",
        "!%41 ",
        "!%ED%A0%80 ",
        "!<x> ",
        "!e!x ",
        "---\n",
        "...\n",
        "%YAML 1.1\n---\n",
    ),
    *(
        "%TAG ! tag:%FF\n",
        "null",
        "~",
        "true",
        "no",
        "1.0",
        "-0",
        "01",
        "1e999",
        "1e999x",
        "NaN",
        "-Infinity",
        "9" * 4_400,
    ),
    *(
        "\\u0000",
        "\\ud800",
        "\\ud83d\\ude00",
        "\\uE000",
        "\\x",
        "\\N",
        "[" * 50,
        "{a: " * 50,
        '{"a":' * 1_200,
        "[" * 1_200,
    ),
    *(
        '"id": "a", ',
        '"text": 1, ',
        '"list": [], ',
        '"type": "regex"',
        '"type": "json_schema"',
        '"schema": {"$ref": "#"}, ',
    ),
    *("\nid: a\n", "\nscenarios:\n", "\n    expectedOutcome: x\n", "\n    tags: x\n", '"role": "robot"', "x" * 400),
)
VALUES: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        0,
        -1,
        1.5,
        10**30,
        "",
        " ",
        "x",
        "\x00",
        "\ud800",
        "\u2028",
        "(",
        "😀",
        "x" * 300,
        [],
        [[]],
        {},
    ),
    *(
        {"a": {"b": [1]}},
        ["x", None],
        [{"role": "user"}],
        {"type": "json_schema", "schema": {"type": 7}},
        {"$ref": "x:"},
    ),
    *({"type": "regex"}, {"type": "contains", "text": 1}, {"difficulty": "hard", "tokens_est": -1}, "a\x85b"),
)
KEYS = (
    "id",
    "Id",
    "idd",
    "text",
    "list",
    "scenarios",
    "type",
    "schema",
    "schema_",
    "expectedOutcome",
    "<<",
    "",
    "\ud800",
    "é",
)


class Corpus(NamedTuple):
    """The documents to mutate, as text and as values."""

    suites: list[str]
    scenarios: list[str]
    values: dict[str, Any]


@cache
def load_corpus() -> Corpus:
    """Return every distinct built-in suite line, and every scenario as a document of its own."""
    suites = sorted(
        {line for path in PACKAGE.glob("suites/*/*.jsonl") for line in path.read_text("utf-8").splitlines()}
    )
    scenarios = []
    for path in sorted(PACKAGE.glob("scenarios/*/*.y*ml")):
        head, *entries = re.split(r"(?m)^(?=  - )", path.read_text("utf-8"))
        scenarios += [head + entry for entry in entries]
        scenarios += [
            re.sub(r"(?m)^ {4}", "", entry.replace("  - ", "    ", 1)) for entry in entries
        ]  # without wrapper
    values: dict[str, Any] = {line: json.loads(line) for line in suites}
    values |= {text: yaml.load(text, Loader=yaml.CSafeLoader) for text in scenarios}  # noqa: TID251 - trusted, only to mutate
    return Corpus(suites, scenarios, values)


# ── Mutations: each applies to the output of the previous one ──


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """Delete, overwrite, insert, repeat or flip bytes."""
    at, size = random.randrange(len(data) + 1), random.choice((1, 1, 2, 5, 40))
    part = data[at : at + size]
    new = random.choice(
        (
            b"",
            random.randbytes(size),
            part + random.randbytes(1),
            part + part,
            part[::-1],
            bytes(each ^ 0x80 for each in part),
        )
    )
    return data[:at] + new + data[at + size :]


def mutate_characters(data: bytes, random: Random) -> bytes:
    """Insert or substitute hostile characters, delete some, change their case."""
    text = data.decode(errors="surrogateescape")
    at, size = random.randrange(len(text) + 1), random.choice((0, 1, 1, 3))
    part = text[at : at + size]
    new = random.choice((random.choice(CHARACTERS), random.choice(CHARACTERS) * 3, "", part.swapcase(), part[::-1]))
    return (text[:at] + new + text[at + size :]).encode(errors="surrogateescape")


def mutate_tokens(data: bytes, random: Random) -> bytes:
    """Insert a hostile token between words, or replace a word by one."""
    text = data.decode(errors="surrogateescape")
    borders = [found.start() for found in re.finditer(r"\b|(?<=\s)|$", text)] or [0]
    start = random.choice(borders)
    end = random.choice((start, min((each for each in borders if each > start), default=start)))
    return (text[:start] + random.choice(TOKENS) + text[end:]).encode(errors="surrogateescape")


def mutate_lines(data: bytes, random: Random) -> bytes:
    """Delete, repeat, swap, join, indent or cut lines; change all line endings."""
    lines = data.split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(8):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case 3:
            lines[at : at + 2] = [b"".join(lines[at : at + 2])]
        case 4:
            lines[at] = random.choice((b" ", b"  ", b"\t", b"- ", b"\xe2\x80\xa8")) + lines[at]
        case 5:
            lines[at] = lines[at][random.randrange(4) :]
        case 6:
            return b"\n".join(lines)[: random.randrange(len(data) + 1)]
        case _:
            return random.choice((b"\r\n", b"\r", b"\n\n", b"\xc2\x85", b"\xe2\x80\xa8", b"\n\r")).join(lines)
    return b"\n".join(lines)


def mutate_encoding(data: bytes, random: Random) -> bytes:
    """Save the text in another encoding, or put byte order marks where none belongs."""
    text = data.decode(errors="replace")
    at = random.randrange(len(data) + 1)
    return random.choice(
        (
            lambda: text.encode(
                random.choice(("utf-16", "utf-16-be", "utf-32", "latin-1", "cp1252", "utf-7")), "replace"
            ),
            lambda: BOM + data,
            lambda: BOM + BOM + data,
            lambda: data[:at] + BOM + data[at:],
            lambda: data[:at] + random.choice((b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc3")) + data[at:],
            lambda: text.encode().decode("latin-1").encode(),
        )
    )()


def mutate_structure(value: Any, random: Random) -> Any:
    """Return the value with one node dropped, renamed, moved, repeated, nested or changed in type."""
    value = json.loads(json.dumps(value))
    holder, key = value, random.choice(sorted(value))
    while isinstance(holder[key], dict | list) and holder[key] and random.randrange(4):
        holder = holder[key]
        key = random.choice(sorted(holder)) if isinstance(holder, dict) else random.randrange(len(holder))
    match random.randrange(7):
        case 0:
            del holder[key]
        case 1:
            holder[key] = random.choice(VALUES)
        case 2:
            holder[key] = [holder[key]]
        case 3:
            holder[key] = {str(key): holder[key]}
        case 4 if isinstance(holder, dict):
            holder[random.choice(KEYS)] = random.choice((holder.pop(key), random.choice(VALUES)))
        case 5:
            value[random.choice(KEYS)] = holder[key]
        case _:
            holder[key] = json.dumps(holder[key]) if random.randrange(2) else str(holder[key]).upper()
    return value or {"": None}


ON_BYTES: tuple[Callable[[bytes, Random], bytes], ...] = (
    mutate_bytes,
    mutate_characters,
    mutate_tokens,
    mutate_lines,
    mutate_encoding,
)


def serialize(value: Any, kind: str, random: Random) -> bytes:
    """Serialize a mutated value in its format, in one of several styles."""
    if kind == "suite":
        return json.dumps(value, ensure_ascii=bool(random.randrange(2))).encode(errors="surrogatepass")
    text = json.dumps(value) if re.search("[\ud800-\udfff]", json.dumps(value, ensure_ascii=False)) else None
    style = random.choice((None, None, True))
    text = text or yaml.dump(
        value, Dumper=yaml.CSafeDumper, default_flow_style=style, sort_keys=False, allow_unicode=True
    )
    return text.encode()


class Document(NamedTuple):
    """A mutated document and the loader for it."""

    kind: str
    data: bytes


def make_document(seed: int, number: int) -> Document:
    """Return document `number` of a seed."""
    random = Random(f"{seed}:{number}")
    suites, scenarios, values = load_corpus()
    kind = random.choice(("suite", "scenarios"))
    sources = suites if kind == "suite" else scenarios
    texts = [random.choice(sources) for _ in range(random.choice((1, 1, 1, 2, 3)) if kind == "suite" else 1)]
    written = [text.encode() for text in texts]
    if random.randrange(3) == 0:
        value = values[texts[0]]
        for _ in range(random.choice((1, 1, 2))):
            value = mutate_structure(value, random)
        written[0] = serialize(value, kind, random)
    data = b"\n".join(written)
    if random.randrange(8) == 0:
        other = random.choice(random.choice((suites, scenarios))).encode()
        data = data[: random.randrange(len(data) + 1)] + other[random.randrange(len(other) + 1) :]
    left = random.choice((0, 1, 1, 2, 3))
    while left > 0 or data == b"\n".join(text.encode() for text in texts):
        data, left = random.choice(ON_BYTES)(data, random), left - 1
    if random.randrange(50) == 0:
        kind = "suite" if kind == "scenarios" else "scenarios"
    return Document(kind, data)


# ── The bar ──


@dataclass
class Tally:
    """The counts over a range of documents."""

    documents: int = 0
    valid: int = 0
    problems: int = 0
    exceptions: int = 0
    misplaced: int = 0
    slow: int = 0
    slowest: float = 0
    messages: Counter[str] = field(default_factory=Counter)
    offenders: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: "Tally") -> None:
        """Add another tally to this one."""
        for name in ("documents", "valid", "problems", "exceptions", "misplaced", "slow"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        self.messages += other.messages
        self.offenders += other.offenders


def load(given: Document, folder: Path) -> tuple[bool, Problems]:
    """Load one document; return whether it yields any case, and its problems."""
    problems = Problems(limit=1_000_000)
    if given.kind == "scenarios":
        return bool(read_scenarios(given.data, problems)), problems
    path = folder / "suite.jsonl"
    path.write_bytes(given.data)
    return check_suite(path, problems).suite_hash is not None, problems


def split_lines(given: Document) -> list[str]:
    """Return the lines of a document as its format counts them."""
    text = given.data.removeprefix(BOM).decode(errors="replace")
    if given.kind == "scenarios":
        return re.split(r"\r\n|\r|\n", text.removeprefix("\ufeff"))
    return re.split(r"\r?\n", text)


def describe_misplacement(problem: Problem, lines: Sequence[str]) -> str | None:
    """Return what is wrong with the place of a problem, or None."""
    if not problem.message.strip():
        return "a problem without a message"
    if not 1 <= problem.line <= len(lines):
        return f"line {problem.line} of {len(lines)}: {problem.message}"
    line = lines[problem.line - 1]
    if not 1 <= problem.column <= len(line) + 1:
        return f"column {problem.column} in a line of {len(line)} characters: {problem.message}"
    there, shown = line[problem.column - 1 : problem.column], problem.source[problem.caret - 1 : problem.caret]
    if problem.source and (shown != there and "…" not in (shown, there)):
        return f"the caret shows {shown!r} where {there!r} stands: {problem.message}"
    return None


def normalise(message: str) -> str:
    """Return a message without its quotations, names and numbers, to count messages of the same kind once."""
    unquoted = re.sub(r"(?s)\".*\"|'[^']*'", '"…"', message)  # greedy, since a quotation may contain quotes
    return re.sub(r"0x[0-9a-f]+|U\+[0-9A-F]+|(?<=start with )\S|(?<=the tag )\S+|-?\d[\d,.e+]*", "0", unquoted)


def check_document(seed: int, number: int, folder: Path, tally: Tally) -> None:
    """Load one document and add its outcome to the tally."""
    given = make_document(seed, number)
    tally.documents += 1
    start = time.process_time()
    try:
        cases, problems = load(given, folder)
    except Exception as error:  # noqa: BLE001 - that none leaves the loader is what we measure
        tally.exceptions += 1
        tally.offenders.append((number, f"{type(error).__name__}: {error}"))
        return
    took = time.process_time() - start
    tally.slowest = max(tally.slowest, took)
    if took > SECONDS:
        tally.slow += 1
        tally.offenders.append((number, f"took {took:.1f} s"))
    tally.valid += problems.errors == 0
    tally.problems += len(problems.kept)
    tally.messages.update({normalise(problem.message) for problem in problems})
    lines = split_lines(given)
    wrong = next((why for problem in problems if (why := describe_misplacement(problem, lines))), None)
    if wrong is None and not cases and not problems.errors:
        wrong = "neither cases nor problems"
    if wrong:
        tally.misplaced += 1
        tally.offenders.append((number, wrong))


def check_range(seed: int, start: int, end: int) -> Tally:
    """Check the documents of a range."""
    tally = Tally()
    with TemporaryDirectory(prefix="pramana-mutations-") as folder:
        for number in range(start, end):
            check_document(seed, number, Path(folder), tally)
    return tally


def main() -> int:
    """Print the table; return 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--count", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--show", type=int, metavar="N", help="print document N of this seed and stop")
    options = parser.parse_args()
    if options.show is not None:
        given = make_document(options.seed, options.show)
        print(f"{given.kind}: {given.data!r}")
        return 0
    total, began = Tally(), time.perf_counter()
    starts = range(0, options.count, CHUNK)
    ends = [min(start + CHUNK, options.count) for start in starts]
    with ProcessPoolExecutor(PROCESSES) as pool:
        for tally in pool.map(partial(check_range, options.seed), starts, ends):
            total.add(tally)
    took = time.perf_counter() - began
    print(f"| {options.count:,} mutated documents, seed {options.seed}, {took:.0f} s on {PROCESSES} processes | |")
    print("| --- | --- |")
    for name, value in (
        ("documents", f"{total.documents:,}"),
        ("valid all the same", f"{total.valid:,}"),
        ("with errors", f"{total.documents - total.valid - total.exceptions:,}"),
        ("problems found", f"{total.problems:,}"),
        ("distinct messages", f"{len(total.messages):,}"),
        ("slowest document, CPU ms", f"{total.slowest * 1000:.1f} (bar: under {SECONDS * 1000:,.0f})"),
        ("documents with a misplaced problem", f"{total.misplaced:,} (bar: 0)"),
        ("exceptions", f"{total.exceptions:,} (bar: 0)"),
    ):
        print(f"| {name} | {value} |")
    for number, why in total.offenders[:SHOWN]:
        given = make_document(options.seed, number)
        print(f"\nDocument {number} ({given.kind}; again with --seed {options.seed} --show {number}): {why[:300]}")
        print(f"  {given.data[:400]!r}{'…' if len(given.data) > 400 else ''}")
    return int(bool(total.offenders))


if __name__ == "__main__":
    sys.exit(main())
