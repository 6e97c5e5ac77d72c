"""Uploaded suites on either engine: the same bytes are returned, and a version never changes."""

import threading
from typing import Any

import pytest
from sqlalchemy import text

from pramana.errors import AlreadyExists, NotFound, StoreFailed
from pramana.store.store import Store
from pramana.store.suites import TierUpload


def make_upload(content: bytes, digest: str = "a") -> TierUpload:
    return TierUpload(content, f"sha256:{digest * 64}", 1, 10)


def test_an_uploaded_suite_round_trips(store: Store) -> None:
    content = b'\xef\xbb\xbf{"id": "\xc3\xa9\\u0000"}\r\n\n'
    assert store.suites.upload("v2", {"cheap": make_upload(content), "full": make_upload(b"{}", "b")}) is True
    assert store.suites.read_tier("v2", "cheap") == content
    assert store.suites.read_by_hash("sha256:" + "b" * 64) == b"{}"
    assert store.suites.read_by_hash("sha256:" + "c" * 64) is None
    assert store.suites.read_tier_hashes("v2") == {"cheap": "sha256:" + "a" * 64, "full": "sha256:" + "b" * 64}
    assert store.suites.read_tier_hashes("v3") == {}
    assert [(each.version, each.tier, each.test_count) for each in store.suites.list()] == [
        ("v2", "cheap", 1), ("v2", "full", 1),
    ]  # fmt: skip
    with pytest.raises(NotFound, match='no suite "v2 cheep" was uploaded; did you mean "v2 cheap"'):
        store.suites.read_tier("v2", "cheep")


@pytest.mark.parametrize(
    "other",
    [
        {"cheap": make_upload(b"other", "b")},
        {"cheap": make_upload(b"it"), "full": make_upload(b"more", "c")},
        {"full": make_upload(b"it")},
    ],
    ids=["other content", "one tier more", "another name"],
)
def test_a_version_never_changes(store: Store, other: dict[str, TierUpload]) -> None:
    assert store.suites.upload("v2", {"cheap": make_upload(b"it")}) is True
    assert (
        store.suites.upload("v2", {"cheap": make_upload(b"it, written otherwise")}) is False
    )  # the hash is the identity
    with pytest.raises(AlreadyExists, match="v2 already exists with other content, and versions never change"):
        store.suites.upload("v2", other)
    assert store.suites.read_tier("v2", "cheap") == b"it"
    assert [each.action for each in store.changes.list_after(0)] == ["created"]


def test_one_of_many_concurrent_uploads_of_a_version_wins(store: Store) -> None:
    ended: list[Any] = []

    def upload(digest: str) -> None:
        try:
            ended.append(store.suites.upload("v2", {f"tier-{digest}": make_upload(digest.encode(), digest)}))
        except AlreadyExists:
            ended.append("refused")

    threads = [threading.Thread(target=upload, args=(digest,)) for digest in "abcdefab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert ended.count(True) == 1
    assert len(store.suites.list()) == 1
    assert set(ended) <= {True, False, "refused"}


def test_damaged_content_is_reported(store: Store) -> None:
    store.suites.upload("v2", {"cheap": make_upload(b"it")})
    with store._database.write_transaction() as connection:
        connection.execute(text("UPDATE suite_tiers SET content = :content"), {"content": b"no zlib"})
    with pytest.raises(StoreFailed, match="v2 cheap is damaged"):
        store.suites.read_tier("v2", "cheap")
