"""`/api/suites`: which suites there are, what is in them, and a way to add one; a version never changes.

Versions are built in, published into the server's data folder, or uploaded into its store; they are looked up in this
order, and no two are called the same.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response
from pydantic import Field

from pramana.app import App
from pramana.errors import AlreadyExists, InvalidInput
from pramana.load.manifest import (
    Version,
    built_in_or_published,
    check_upload,
    find_version,
    no_tier,
    no_version,
    versions,
)
from pramana.show.api.envelope import Answered, Body, PageNumber, PageSize, Shape, answer, documented, page_of
from pramana.show.api.known_suites import facts_of, forget_unknown, lines_of
from pramana.show.api.serving import Editor, Here, Viewer
from pramana.store.suites import Tier, Upload

router = APIRouter(tags=["suites"])
MOST_TIERS = 50
_JSONL = "application/jsonl"
_HASH = "hash"
"""What no tier may be called: its address is taken."""
LONGEST_TEXT = 1_000
_TEXT = "Only cases with this in their id or input, in capitals or not; the whole file is always whole"


class TierShape(Shape):
    """A tier, as its manifest has it."""

    file: str
    hash: str
    test_count: int
    estimated_tokens: int
    estimated_cost_usd: float | None
    use_case: str | None


class SuiteShape(Shape):
    """A suite version."""

    version: str
    origin: Literal["built-in", "published", "uploaded"]
    tiers: dict[str, TierShape]
    categories: list[str]
    assertion_types: list[str]
    created_at: str | None = Field(description="Of one that was uploaded")


class ListedShape(Shape):
    """A suite version in a list."""

    version: str
    origin: Literal["built-in", "published", "uploaded"]
    tiers: dict[str, TierShape]


class HashShape(Shape):
    """The hashes of a version's tiers."""

    version: str
    tiers: dict[str, str]


class TierHashShape(Shape):
    """The hash of a tier."""

    version: str
    tier: str
    hash: str


class SuiteBody(Body):
    """A version to be kept."""

    version: str = Field(max_length=64)
    tiers: dict[str, str] = Field(description="JSONL text by the name of its tier", min_length=1, max_length=MOST_TIERS)


@dataclass(frozen=True, slots=True)
class _Suite:
    """A version, wherever it is kept."""

    version: str
    origin: str
    tiers: dict[str, dict[str, Any]]
    files: Version | None = None
    created: str | None = None

    def content(self, serving: App, tier: str) -> bytes:
        """Return the JSONL of a tier; a file that differs from its pin is refused."""
        if tier not in self.tiers:
            raise no_tier(self.version, tier, self.tiers)
        if self.files is None:
            return serving.store.suites.content(self.version, tier)
        return self.files.path(tier).read_bytes()


_uploaded_too = documented(SuiteShape, 409, status=201, description="It is new")
_uploaded_too["responses"][200] = {"model": Answered[SuiteShape], "description": "It is there already, and the same"}
_cases_or_file = documented(list[dict[str, Any]], 404, 409)
_cases_or_file["responses"][200]["content"] = {_JSONL: {"schema": {"type": "string"}}}


@router.get("/api/suites", summary="List suites", **documented(list[ListedShape]))
def list_suites(here: Here, _: Viewer) -> Response:
    """Return every version: built in, published, uploaded."""
    return answer([{"version": each.version, "origin": each.origin, "tiers": each.tiers} for each in _all_suites(here)])


@router.post("/api/suites", summary="Upload a suite", **_uploaded_too)
def upload_suite(body: SuiteBody, here: Here, _: Editor) -> Response:
    """Keep a version: 201 when it is new, 200 when it is there with the same content, 409 when that is another."""
    if _HASH in body.tiers:
        raise InvalidInput(f'no tier can be called "{_HASH}"; choose another name')
    uploaded = check_upload(body.version, body.tiers)
    tiers = {
        name: Upload(uploaded.content[name], str(found.hash), found.cases, found.tokens_est)
        for name, found in uploaded.tiers.items()
    }
    if built_in_or_published(body.version):
        there = _find(here, body.version)
        if {name: tier["hash"] for name, tier in there.tiers.items()} != {
            name: each.hash for name, each in tiers.items()
        }:
            raise AlreadyExists(
                f"{body.version} is {there.origin} with other content, and never changes; choose a new version"
            )
        return answer(_suite(here, there))
    new = here.store.suites.upload(body.version, tiers)
    forget_unknown(here.store)
    return answer(_suite(here, _find(here, body.version)), status=201 if new else 200)


@router.get("/api/suites/{version}", summary="Read a suite", **documented(SuiteShape, 404, 409))
def read_suite(version: str, here: Here, _: Viewer) -> Response:
    """Return what a version's manifest says."""
    return answer(_suite(here, _find(here, version)))


@router.get("/api/suites/{version}/hash", summary="The hashes of a suite", **documented(HashShape, 404))
def suite_hashes(version: str, here: Here, _: Viewer) -> Response:
    """Return the hash of each tier."""
    found = _find(here, version)
    return answer({"version": version, "tiers": {name: tier["hash"] for name, tier in found.tiers.items()}})


@router.get("/api/suites/{version}/{tier}", summary="The cases of a tier", **_cases_or_file)
def read_tier(
    version: str,
    tier: str,
    here: Here,
    _: Viewer,
    page: PageNumber = 1,
    page_size: PageSize = 50,
    kind: Annotated[Literal["json", "jsonl"], Query(alias="format", description="jsonl: the file itself")] = "json",
    text: Annotated[str, Query(max_length=LONGEST_TEXT, description=_TEXT)] = "",
) -> Response:
    """Return the cases of a tier, in the names of the file, by the page; or the whole file."""
    content = _find(here, version).content(here, tier)
    if kind == "jsonl":
        named = {"Content-Disposition": f'attachment; filename="{tier}.jsonl"'}
        return Response(content, media_type=_JSONL, headers=named)
    if text:
        cases, meta = page_of(
            [each for each in map(json.loads, lines_of(content)) if _holds(each, text)], page, page_size
        )
        return answer(cases, meta)
    lines, meta = page_of(list(lines_of(content)), page, page_size)
    return answer([json.loads(line) for line in lines], meta)


def _holds(case: dict[str, Any], text: str) -> bool:
    asked = case["input"]
    said = [asked] if isinstance(asked, str) else [turn["content"] for turn in asked]
    return any(text.casefold() in each.casefold() for each in (case["id"], *said))


@router.get("/api/suites/{version}/{tier}/hash", summary="The hash of a tier", **documented(TierHashShape, 404))
def tier_hash(version: str, tier: str, here: Here, _: Viewer) -> Response:
    """Return the hash by which everybody knows the tier."""
    found = _find(here, version)
    if tier not in found.tiers:
        raise no_tier(version, tier, found.tiers)
    return answer({"version": version, "tier": tier, "hash": found.tiers[tier]["hash"]})


# ── What is known of them ──


def _all_suites(serving: App) -> Iterator[_Suite]:
    names = set()
    for version in versions():
        names.add(version.manifest.version)
        yield _of_files(version)
    uploaded: dict[str, list[Tier]] = {}
    for tier in serving.store.suites.list():
        if tier.version not in names:  # published under the same name afterwards: files come first
            uploaded.setdefault(tier.version, []).append(tier)
    for name, tiers in uploaded.items():
        yield _of_store(name, tiers)


def _find(serving: App, version: str) -> _Suite:
    if built_in_or_published(version):
        return _of_files(find_version(version))
    if tiers := serving.store.suites.tiers(version):
        return _of_store(version, list(tiers.values()))
    raise no_version(version)


def _of_files(version: Version) -> _Suite:
    tiers = {
        name: {
            "file": tier.file,
            "hash": tier.hash,
            "testCount": tier.test_count,
            "estimatedTokens": tier.estimated_tokens,
            "estimatedCostUsd": tier.estimated_cost_usd,
            "useCase": tier.use_case,
        }
        for name, tier in version.manifest.tiers.items()
    }
    return _Suite(version.manifest.version, "built-in" if version.built_in else "published", tiers, version)


def _of_store(name: str, tiers: list[Tier]) -> _Suite:
    said = {
        tier.tier: {
            "file": f"{tier.tier}.jsonl",
            "hash": tier.hash,
            "testCount": tier.test_count,
            "estimatedTokens": tier.estimated_tokens,
            "estimatedCostUsd": None,
            "useCase": None,
        }
        for tier in tiers
    }
    return _Suite(name, "uploaded", said, None, tiers[0].created)


def _suite(serving: App, suite: _Suite) -> dict[str, Any]:
    if suite.files:
        stated = suite.files.manifest
        categories, types = list(stated.categories), list(stated.assertion_types)
    else:
        facts = facts_of(serving, [tier["hash"] for tier in suite.tiers.values()]).values()
        categories = sorted({each for fact in facts for each in fact.categories})
        types = sorted({each for fact in facts for each in fact.assertion_types})
    return {
        "version": suite.version,
        "origin": suite.origin,
        "tiers": suite.tiers,
        "categories": categories,
        "assertionTypes": types,
        "createdAt": suite.created,
    }
