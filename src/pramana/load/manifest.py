"""Suite versions: a folder with `manifest.toml` and one JSONL file per tier, each pinned by its hash.

Versions are looked up among the built-in suites first, then among those published into the data folder. They are
immutable: a tier whose content differs from its pin is never returned, and an existing version is never overwritten.
"""

import json
import os
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pramana import clock, settings
from pramana.errors import AlreadyExists, HashMismatch, InvalidInput, NotFound, Problem, quote_text, suggest_similar
from pramana.hash import hash_suite
from pramana.load.problems import Problems, describe_value
from pramana.load.suite import Category, SuiteFileSummary, check_suite
from pramana.plugins import assertion_types

BUILT_IN_SUITES_FOLDER = Path(__file__).parent.parent / "suites"
MANIFEST_FILE_NAME = "manifest.toml"
ABANDONED_AFTER_S = 3600
MAX_MANIFEST_BYTES = 1 << 20
MAX_PROBLEMS = 100
_DEL_CHARACTER_ESCAPE = "\\u007f"  # the one control character that JSON leaves unescaped and TOML refuses
_NAME_RE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class Tier(BaseModel):
    """A tier in a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    file: str = Field(pattern=r"^[^/\\]+\.jsonl$")
    test_count: int = Field(ge=1, le=2**63 - 1)
    estimated_cost_usd: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """None for suites that users publish: the cost depends on the model."""
    estimated_tokens: int = Field(ge=0, le=2**63 - 1)
    use_case: str | None = None
    hash: str = Field(pattern=r"^sha256:[0-9a-f]{64}$")


class Manifest(BaseModel):
    """The contents of `manifest.toml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: str
    tiers: dict[str, Tier] = Field(min_length=1)
    categories: tuple[str, ...]
    assertion_types: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SuiteVersion:
    """A suite version and its folder."""

    folder: Path
    manifest: Manifest
    is_built_in: bool = False

    def verified_tier_path(self, tier: str) -> Path:
        """Return a tier's file; raise an error if it does not match its pin."""
        stated = self.manifest.tiers.get(tier)
        if stated is None:
            raise make_no_tier_error(self.manifest.version, tier, self.manifest.tiers)
        path = self.folder / stated.file
        if not path.is_file():
            raise NotFound(f"{path} is named in the manifest but does not exist")
        if (actual := hash_suite(path)) != stated.hash:
            raise HashMismatch(f"{self.manifest.version} {tier} ({path})", pinned=stated.hash, actual=actual)
        return path


def iterate_versions(problems: list[Problem] | None = None) -> Iterator[SuiteVersion]:
    """Yield every version, built-in ones first; add manifests that cannot be read to `problems`."""
    for root in (BUILT_IN_SUITES_FOLDER, settings.published_suites_folder()):
        for folder in sorted(root.iterdir()) if root.is_dir() else ():
            if (folder / MANIFEST_FILE_NAME).is_file() and not folder.name.startswith("."):
                try:
                    yield _open_correctly_named_version(folder)
                except InvalidInput as error:
                    if problems is not None:
                        problems.extend(error.problems)


def find_version(name: str) -> SuiteVersion:
    """Return the version with that name."""
    folder = find_version_folder(name)
    if folder is None:
        raise make_no_version_error(name)
    return _open_correctly_named_version(folder)


def find_version_folder(name: str) -> Path | None:
    """Return the folder of the version with that name; None if no folder has it."""
    folders = (
        [root / name for root in (BUILT_IN_SUITES_FOLDER, settings.published_suites_folder())]
        if _NAME_RE.fullmatch(name)
        else []
    )
    return next((each for each in folders if (each / MANIFEST_FILE_NAME).is_file()), None)


def make_no_version_error(name: str) -> NotFound:
    """Return the error for an unknown version."""
    known = [version.manifest.version for version in iterate_versions()]
    hint = suggest_similar(name, known) if len(known) > 1 else ""
    return NotFound(f"no suite version {quote_text(name)}; there is {', '.join(known)}{hint}")


def make_no_tier_error(version: str, tier: str, known: Iterable[str]) -> NotFound:
    """Return the error for a tier that a version does not have."""
    return NotFound(
        f"{version} has no tier {quote_text(tier)}; it has {', '.join(known)}{suggest_similar(tier, known)}"
    )


def open_version(folder: Path) -> SuiteVersion:
    """Read the manifest of any folder."""
    path = folder / MANIFEST_FILE_NAME
    try:
        if path.stat().st_size > MAX_MANIFEST_BYTES:
            raise InvalidInput.from_problems(
                [Problem(f"larger than {MAX_MANIFEST_BYTES >> 20} MB", "", 1, 1, str(path))]
            )
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"{folder} contains no {MANIFEST_FILE_NAME}, so it is not a suite version") from None
    except UnicodeDecodeError:
        raise InvalidInput.from_problems([Problem("not UTF-8", "", 1, 1, str(path))]) from None
    return SuiteVersion(folder, _read_manifest(text, path), is_built_in=folder.parent == BUILT_IN_SUITES_FOLDER)


def _open_correctly_named_version(folder: Path) -> SuiteVersion:
    """Read a version in a folder; the name in its manifest must be the folder's."""
    version = open_version(folder)
    if version.manifest.version != folder.name:
        says = describe_value(version.manifest.version)
        message = f"the manifest says version {says}, but the folder is named {describe_value(folder.name)}"
        raise InvalidInput.from_problems([Problem(message, "version", file=str(folder / MANIFEST_FILE_NAME))])
    return version


def _read_manifest(text: str, path: Path) -> Manifest:
    try:
        return Manifest.model_validate(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))  # without a position, it is the end of the document
        lines = text.split("\n")
        line, column = (int(place[1]), int(place[2])) if place else (len(lines), len(lines[-1]) + 1)
        what = str(error).partition(" (at ")[0]
        raise InvalidInput.from_problems([Problem(f"not valid TOML: {what}", "", line, column, str(path))]) from None
    except ValidationError as errors:
        problems = [
            Problem(
                f"{error['msg'][:1].lower()}{error['msg'][1:]}, found {describe_value(error['input'])}",
                ".".join(str(part)[:60] for part in error["loc"]),
                file=str(path),
            )
            for error in errors.errors(include_url=False)[:MAX_PROBLEMS]
        ]
        raise InvalidInput.from_problems(problems, errors.error_count()) from None
    except (RecursionError, ValueError):  # nested too deep for the parser, or a number of thousands of digits
        raise InvalidInput.from_problems(
            [Problem("not a manifest: nested too deeply, or a number too long", "", 1, 1, str(path))]
        ) from None


@dataclass(frozen=True, slots=True)
class TierVerification:
    """The result of comparing a tier with its manifest; valid if there are no problems."""

    tier: str
    path: Path
    pinned_hash: str
    actual_hash: str | None
    """None if the file is missing or has no hash."""
    problems: tuple[Problem, ...]

    @property
    def verdict(self) -> str:
        """Return `verified`, `differs` (from its pin) or `invalid` (whatever its hash)."""
        if not self.problems:
            return "verified"
        return "differs" if self.actual_hash not in (None, self.pinned_hash) else "invalid"


def verify_version(version: SuiteVersion, max_errors: int) -> Iterator[TierVerification]:
    """Compare every tier with its pin, its count and its estimate, and validate each case."""
    listed = {*version.manifest.categories}, {*version.manifest.assertion_types}
    for name, tier in version.manifest.tiers.items():
        path = version.folder / tier.file
        problems = Problems(max_errors)
        if not path.is_file():
            missing = Problem("named in the manifest but does not exist", file=str(path))
            yield TierVerification(name, path, tier.hash, None, (missing,))
            continue
        suite = check_suite(path, problems)
        if suite.suite_hash and suite.suite_hash != tier.hash:
            problems.add(
                Problem(
                    f"does not match its pinned hash\n  pinned {tier.hash}\n  found  {suite.suite_hash}", file=str(path)
                )
            )
        for what, unlisted in (
            ("categories", suite.categories - listed[0]),
            ("assertion_types", suite.assertion_types - listed[1]),
        ):
            if suite.suite_hash and unlisted:
                message = f"in the manifest, {what} does not list {', '.join(sorted(unlisted))}"
                problems.add(Problem(message, file=str(path)))
        for what, stated, actual in (
            ("test_count", tier.test_count, suite.case_count),
            ("estimated_tokens", tier.estimated_tokens, suite.total_tokens_est),
        ):
            if suite.suite_hash and stated != actual:
                problems.add(Problem(f"the manifest says {what} = {stated}, found {actual}", file=str(path)))
        yield TierVerification(
            name, path, tier.hash, suite.suite_hash, tuple(each for each in problems if each.severity == "error")
        )


def publish_version(
    files: Sequence[Path],
    version: str,
    parent_folder: Path | None = None,
    *,
    use_cases: Mapping[str, str] | None = None,
    costs_usd: Mapping[str, float] | None = None,
) -> SuiteVersion:
    """Write files as the pinned tiers of a new version, atomically."""
    if not _NAME_RE.fullmatch(version):
        raise InvalidInput(
            "a version is letters, digits, dots, hyphens and underscores, such as v1.1; found "
            f"{describe_value(version)}"
        )
    root = parent_folder or settings.published_suites_folder()
    if root.resolve().is_relative_to(BUILT_IN_SUITES_FOLDER.resolve()):
        raise InvalidInput("built-in suites cannot be changed; publish to another folder")
    target = root / version
    if target.exists() or (parent_folder is None and (BUILT_IN_SUITES_FOLDER / version).exists()):
        raise AlreadyExists(f"{version} is already published, and versions never change; choose a new version")
    tiers: dict[str, Path] = {}
    for path in files:
        if not _NAME_RE.fullmatch(path.stem) or path.suffix != ".jsonl":
            raise InvalidInput(
                f"{path}: the file name gives the tier its name and must end in .jsonl, such as smoke.jsonl"
            )
        if not path.is_file():
            raise InvalidInput(f"{path} is not a regular file")
        if path.stem in tiers:
            raise InvalidInput(f'{path}: another file already has the tier name "{path.stem}"')
        tiers[path.stem] = path
    for text in (use_cases or {}).values():
        if not text.isprintable() and any("\ud800" <= each <= "\udfff" for each in text):
            raise InvalidInput(f"the use case {describe_value(text)} is not text")
    for name in {**(use_cases or {}), **(costs_usd or {})}:
        if name not in tiers:
            raise InvalidInput(f'no file for the tier "{name}"{suggest_similar(name, tiers)}')
    root.mkdir(parents=True, exist_ok=True)
    for abandoned in root.glob(f".{version}-*"):  # left by a publication that was killed
        with suppress(FileNotFoundError):  # another process is publishing it right now
            if abandoned.stat().st_mtime < clock.timestamp() - ABANDONED_AFTER_S:
                shutil.rmtree(abandoned, ignore_errors=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{version}-", dir=root))
    try:
        checked, problems = {}, Problems()
        for name, path in tiers.items():  # copy first, then check the copy: the pin is of what was read
            shutil.copyfile(path, staged / path.name)
            checked[name] = check_suite(staged / path.name, problems)
            problems.raise_errors(str(path))
        text = _format_manifest(version, checked, use_cases or {}, costs_usd or {})
        _read_manifest(text, staged / MANIFEST_FILE_NAME)  # a version that cannot be read could never be replaced
        (staged / MANIFEST_FILE_NAME).write_text(text, encoding="utf-8")
        for each in (*staged.iterdir(), staged):
            _sync_to_disk(each)
        staged.chmod(0o755)
        try:
            staged.rename(target)
        except OSError as error:
            if target.exists():  # another process published the same version meanwhile
                raise AlreadyExists(
                    f"{version} is already published, and versions never change; choose a new version"
                ) from None
            raise InvalidInput(f"cannot write {target}: {error.strerror}") from None
        _sync_to_disk(root)
    except BaseException:
        shutil.rmtree(staged, ignore_errors=True)
        raise
    return open_version(target)


@dataclass(frozen=True, slots=True)
class CheckedUpload:
    """Uploaded tiers that are valid."""

    files_by_tier: Mapping[str, SuiteFileSummary]
    content_by_tier: Mapping[str, bytes]


def check_upload(version: str, jsonl_by_tier: Mapping[str, str]) -> CheckedUpload:
    """Check the tiers of a version uploaded as JSONL text; raise `InvalidInput` with every problem.

    A problem names the tier as its file, so that the sender finds the place.
    """
    names = [version, *jsonl_by_tier]
    bad = next((each for each in names if not _NAME_RE.fullmatch(each)), None)
    if bad is not None:  # not a truth test: the invalid name may be empty
        raise InvalidInput(
            "versions and tiers are letters, digits, dots, hyphens and underscores, such as v1.1 and cheap; found "
            f"{describe_value(bad)}"
        )
    if not jsonl_by_tier:
        raise InvalidInput("a version needs at least one tier; send tiers, each with a name and its JSONL text")
    problems = Problems()
    content = {name: text.encode("utf-8", "surrogatepass") for name, text in jsonl_by_tier.items()}
    checked = {name: check_suite(f"{name}.jsonl", problems, data) for name, data in content.items()}
    problems.raise_errors()
    return CheckedUpload(checked, content)


def _sync_to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _format_manifest(
    version: str, tiers: Mapping[str, SuiteFileSummary], use_cases: Mapping[str, str], costs_usd: Mapping[str, float]
) -> str:
    def in_order(names: set[str], order: Sequence[str]) -> str:
        return json.dumps(sorted(names, key=order.index))  # a list of strings is the same in JSON and TOML

    categories = {name for suite in tiers.values() for name in suite.categories}
    types = {name for suite in tiers.values() for name in suite.assertion_types}
    lines = [f"version = {json.dumps(version)}"]
    lines += [f"categories = {in_order(categories, get_args(Category))}"]
    lines += [f"assertion_types = {in_order(types, assertion_types.names())}"]
    for name, suite in tiers.items():
        key = json.dumps(name) if "." in name else name
        lines += ["", f"[tiers.{key}]", f"file = {json.dumps(name + '.jsonl')}", f"test_count = {suite.case_count}"]
        if name in costs_usd:
            lines += [f"estimated_cost_usd = {float(costs_usd[name])!r}"]
        lines += [f"estimated_tokens = {suite.total_tokens_est}"]
        if name in use_cases:
            lines += [
                f"use_case = {json.dumps(use_cases[name], ensure_ascii=False).replace(chr(127), _DEL_CHARACTER_ESCAPE)}"
            ]
        lines += [f"hash = {json.dumps(suite.suite_hash)}"]
    return "\n".join(lines) + "\n"
