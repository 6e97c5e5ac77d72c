"""Suites: list versions, read their tiers, and upload a version; a version never changes.

Versions are built in, published into the server's data folder, or uploaded into its store; they are looked up in this
order, and no two have the same name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

from msgspec import Meta
from msgspec.structs import asdict

from pramana.app import App, User, use_case
from pramana.app.known_suites import iterate_case_lines
from pramana.app.views import ListPage, PageRequest, View
from pramana.errors import AlreadyExists, InvalidInput
from pramana.load.manifest import (
    SuiteVersion,
    check_upload,
    find_version,
    find_version_folder,
    iterate_versions,
    make_no_tier_error,
    make_no_version_error,
)
from pramana.store.suites import Tier, TierUpload

MAX_TIERS = 50
MAX_SEARCH_TEXT_CHARS = 1_000
_RESERVED_TIER_NAME = "hash"
"""A reserved tier name: its URL is taken by the route of the hashes."""


# ── Views ──


class TierView(View, frozen=True, kw_only=True):
    """A tier, as described by its manifest."""

    file: str
    hash: str
    test_count: int
    estimated_tokens: int
    estimated_cost_usd: float | None
    use_case: str | None


class ListedSuiteView(View, frozen=True, kw_only=True):
    """A suite version in a list."""

    version: str
    origin: Literal["built-in", "published", "uploaded"]
    tiers: Mapping[str, TierView]


class SuiteView(ListedSuiteView, frozen=True, kw_only=True):
    """A suite version."""

    categories: tuple[str, ...]
    assertion_types: tuple[str, ...]
    created_at: Annotated[str | None, Meta(description="Time of the upload; null for a suite in files")]


class TierHashesView(View, frozen=True, kw_only=True):
    """The hashes of a version's tiers."""

    version: str
    tiers: Mapping[str, str]


class TierHashView(View, frozen=True, kw_only=True):
    """The hash of a tier."""

    version: str
    tier: str
    hash: str


# ── Use cases ──


class CaseFilter(PageRequest, frozen=True, kw_only=True):
    """A page of a tier's cases, in the order of its file."""

    text: Annotated[str, Meta(max_length=MAX_SEARCH_TEXT_CHARS)] = ""
    """Text in their id or input, ignoring case."""


class UploadedSuite(NamedTuple):
    """An uploaded version, and whether it is new."""

    suite: SuiteView
    is_new: bool


@use_case("viewer")
def list_suites(app: App, _: User) -> list[ListedSuiteView]:
    """Return all versions: built in, published, uploaded."""
    return list(_list_all_suites(app))


@use_case("viewer")
def read_suite(app: App, _: User, version: str) -> SuiteView:
    """Return a version, as described by its manifest."""
    return _read_suite(app, version)


@use_case("viewer")
def read_hashes(app: App, _: User, version: str) -> TierHashesView:
    """Return the hash of each tier."""
    return _read_hashes(app, version)


@use_case("viewer")
def read_tier_hash(app: App, _: User, version: str, tier: str) -> TierHashView:
    """Return the suite hash of a tier."""
    found = _read_hashes(app, version)
    if tier not in found.tiers:
        raise make_no_tier_error(version, tier, found.tiers)
    return TierHashView(version=version, tier=tier, hash=found.tiers[tier])


@use_case("viewer")
def list_cases(app: App, _: User, version: str, tier: str, wanted: CaseFilter) -> ListPage[dict[str, Any]]:
    """Return a page of a tier's cases, with field names as in the file."""
    lines = list(iterate_case_lines(_read_tier_content(app, version, tier)))
    if wanted.text:
        folded = wanted.text.casefold()
        lines = [each for each in lines if _has_text(json.loads(each), folded)]
    page = lines[wanted.offset : wanted.offset + wanted.page_size]
    return ListPage([json.loads(line) for line in page], len(lines))


@use_case("viewer")
def read_tier_file(app: App, _: User, version: str, tier: str) -> bytes:
    """Return the JSONL file of a tier unchanged; raises if it does not match the hash in its manifest."""
    return _read_tier_content(app, version, tier)


@use_case("editor")
def upload_suite(app: App, _: User, version: str, jsonl_by_tier: Mapping[str, str]) -> UploadedSuite:
    """Store a version, from JSONL text by tier name; an existing name with different content is refused."""
    app.check_request_size(*jsonl_by_tier.values())
    if _RESERVED_TIER_NAME in jsonl_by_tier:
        raise InvalidInput(f'no tier can be called "{_RESERVED_TIER_NAME}"; choose another name')
    if len(jsonl_by_tier) > MAX_TIERS:
        raise InvalidInput(f"a version has at most {MAX_TIERS} tiers, found {len(jsonl_by_tier):,}")
    uploaded = check_upload(version, jsonl_by_tier)
    if not find_version_folder(version):
        stored = {
            name: TierUpload(
                uploaded.content_by_tier[name], str(found.suite_hash), found.case_count, found.total_tokens_est
            )
            for name, found in uploaded.files_by_tier.items()
        }
        new = app.store.suites.upload(version, stored)
        app.known_suites.forget_unknown_hashes()
        return UploadedSuite(_read_suite(app, version), new)
    there = _read_suite(app, version)
    if {name: tier.hash for name, tier in there.tiers.items()} != {
        name: tier.suite_hash for name, tier in uploaded.files_by_tier.items()
    }:
        raise AlreadyExists(
            f"{version} is already {there.origin} with other content, and a version never changes; choose a new "
            "version name"
        )
    return UploadedSuite(there, is_new=False)


# ── Known suites ──


def _list_all_suites(app: App) -> Iterator[ListedSuiteView]:
    names = set()
    for version in iterate_versions():
        names.add(version.manifest.version)
        yield _make_file_suite_view(version)
    uploaded: dict[str, list[Tier]] = {}
    for tier in app.store.suites.list():
        if tier.version not in names:  # if the same name was published later, the files take precedence
            uploaded.setdefault(tier.version, []).append(tier)
    for tiers in uploaded.values():
        yield _make_stored_suite_view(tiers)


def _make_file_suite_view(version: SuiteVersion) -> ListedSuiteView:
    return ListedSuiteView(
        version=version.manifest.version,
        origin="built-in" if version.is_built_in else "published",
        tiers={name: TierView(**tier.model_dump()) for name, tier in version.manifest.tiers.items()},
    )


def _make_stored_suite_view(tiers: Sequence[Tier]) -> ListedSuiteView:
    found = {
        each.tier: TierView(
            file=f"{each.tier}.jsonl",
            hash=each.hash,
            test_count=each.test_count,
            estimated_tokens=each.estimated_tokens,
            estimated_cost_usd=None,
            use_case=None,
        )
        for each in tiers
    }
    return ListedSuiteView(version=tiers[0].version, origin="uploaded", tiers=found)


def _uploaded_tiers(app: App, version: str) -> list[Tier]:
    found = list(app.store.suites.read_tiers(version).values())
    if not found:
        raise make_no_version_error(version)
    return found


def _read_suite(app: App, version: str) -> SuiteView:
    if find_version_folder(version):
        files = find_version(version)
        stated = files.manifest
        return SuiteView(
            **asdict(_make_file_suite_view(files)),
            categories=stated.categories,
            assertion_types=stated.assertion_types,
            created_at=None,
        )
    tiers = _uploaded_tiers(app, version)
    facts = app.known_suites.find_facts(each.hash for each in tiers).values()
    return SuiteView(
        **asdict(_make_stored_suite_view(tiers)),
        categories=tuple(sorted({each for fact in facts for each in fact.categories})),
        assertion_types=tuple(sorted({each for fact in facts for each in fact.assertion_types})),
        created_at=tiers[0].created,
    )


def _read_hashes(app: App, version: str) -> TierHashesView:
    in_files = find_version_folder(version)
    found = (
        _make_file_suite_view(find_version(version))
        if in_files
        else _make_stored_suite_view(_uploaded_tiers(app, version))
    )
    return TierHashesView(version=version, tiers={name: tier.hash for name, tier in found.tiers.items()})


def _read_tier_content(app: App, version: str, tier: str) -> bytes:
    if find_version_folder(version):
        return find_version(version).verified_tier_path(tier).read_bytes()
    known = [each.tier for each in _uploaded_tiers(app, version)]
    if tier not in known:
        raise make_no_tier_error(version, tier, known)
    return app.store.suites.read_tier(version, tier)


def _has_text(case: Mapping[str, Any], casefolded_text: str) -> bool:
    stated = case["input"]
    texts = [stated] if isinstance(stated, str) else [turn["content"] for turn in stated]
    return any(casefolded_text in each.casefold() for each in (case["id"], *texts))
