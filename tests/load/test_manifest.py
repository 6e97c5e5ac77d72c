"""Suite versions: pinned, verified, published once, and refused when they differ."""

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pramana import settings
from pramana.errors import AlreadyExists, HashMismatch, InvalidInput, NotFound, Problem
from pramana.hash import hash_suite
from pramana.load.manifest import (
    BUILT_IN_SUITES_FOLDER,
    check_upload,
    find_version,
    iterate_versions,
    open_version,
    publish_version,
    verify_version,
)

from .. import programs


def make_line(number: int, text: str = "Say hello.") -> str:
    return json.dumps(
        {
            "id": f"coding-{number:03}",
            "category": "coding",
            "input": text,
            "ideal": "hello",
            "assertion": {"type": "contains"},
            "metadata": {"difficulty": "easy", "tokens_est": 5},
        }
    )


@pytest.fixture
def smoke_suite(tmp_path: Path) -> Path:
    path = tmp_path / "smoke.jsonl"
    path.write_text(make_line(1) + "\n" + make_line(2) + "\n", encoding="utf-8")
    return path


def test_the_built_in_manifest_has_the_published_values() -> None:
    manifest = find_version("v1.0").manifest
    stated = [
        (name, tier.file, tier.test_count, tier.estimated_cost_usd, tier.estimated_tokens, tier.use_case)
        for name, tier in manifest.tiers.items()
    ]
    assert stated == [
        ("cheap", "cheap.jsonl", 10, 0.05, 350, "Smoke test and CI gates"),
        ("moderate", "moderate.jsonl", 25, 0.25, 950, "Regular monitoring"),
        ("comprehensive", "comprehensive.jsonl", 75, 1.5, 2800, "Full evaluation"),
    ]
    assert manifest.categories == ("reasoning", "factual", "instruction_following", "coding", "safety", "creative")
    assert manifest.assertion_types == (
        "exact_match", "contains", "contains_any", "is_json", "llm_judge", "semantic_similarity",
    )  # fmt: skip


@pytest.mark.parametrize("tier", ["cheap", "moderate", "comprehensive"])
def test_the_built_in_suites_match_their_manifest(tier: str) -> None:
    version = find_version("v1.0")
    assert version.verified_tier_path(tier) == BUILT_IN_SUITES_FOLDER / "v1.0" / f"{tier}.jsonl"
    verified = {each.tier: each for each in verify_version(version, 10)}
    assert verified[tier].problems == ()
    assert verified[tier].actual_hash == version.manifest.tiers[tier].hash


def test_published_suites_are_found_by_name(smoke_suite: Path) -> None:
    version = publish_version([smoke_suite], "v1.1")
    assert version.folder == settings.published_suites_folder() / "v1.1"
    tier = version.manifest.tiers["smoke"]
    assert (tier.file, tier.test_count, tier.estimated_tokens, tier.hash) == (
        "smoke.jsonl",
        2,
        10,
        hash_suite(smoke_suite),
    )
    assert (tier.estimated_cost_usd, tier.use_case) == (None, None)
    assert (version.manifest.categories, version.manifest.assertion_types) == (("coding",), ("contains",))
    assert [each.manifest.version for each in iterate_versions()] == ["v1.0", "v1.1"]
    assert find_version("v1.1").verified_tier_path("smoke").read_bytes() == smoke_suite.read_bytes()
    assert not list(settings.published_suites_folder().glob(".*"))


def test_a_suite_that_differs_from_its_pin_is_refused_with_both_hashes(smoke_suite: Path) -> None:
    version = publish_version([smoke_suite], "v1.1")
    pinned, path = version.manifest.tiers["smoke"].hash, version.folder / "smoke.jsonl"
    path.write_text(make_line(1) + "\n" + make_line(2, "Say hello!") + "\n", encoding="utf-8")
    with pytest.raises(HashMismatch, match="does not match its pinned hash") as caught:
        find_version("v1.1").verified_tier_path("smoke")
    assert (caught.value.pinned, caught.value.actual) == (pinned, hash_suite(path))
    assert pinned in str(caught.value)
    assert caught.value.actual in str(caught.value)
    assert caught.value.exit_code == 2
    (verified,) = verify_version(version, 10)
    assert "does not match its pinned hash" in verified.problems[0].message


def test_a_reordered_suite_still_matches_its_pin(smoke_suite: Path) -> None:
    version = publish_version([smoke_suite], "v1.1")
    (version.folder / "smoke.jsonl").write_text(make_line(2) + "\r\n\r\n" + make_line(1), encoding="utf-8")
    assert version.verified_tier_path("smoke").is_file()


def test_verify_compares_counts_and_finds_missing_files(smoke_suite: Path) -> None:
    version = publish_version([smoke_suite], "v1.1")
    manifest = version.folder / "manifest.toml"
    manifest.write_text(manifest.read_text().replace("test_count = 2", "test_count = 3"))
    (verified,) = verify_version(open_version(version.folder), 10)
    assert [each.message for each in verified.problems] == ["the manifest says test_count = 3, found 2"]
    (version.folder / "smoke.jsonl").unlink()
    (verified,) = verify_version(open_version(version.folder), 10)
    assert "does not exist" in verified.problems[0].message
    with pytest.raises(NotFound, match="does not exist"):
        version.verified_tier_path("smoke")


@pytest.mark.parametrize("name", ["v1.0", "v1.1"])
def test_an_existing_version_is_never_overwritten(smoke_suite: Path, name: str) -> None:
    if name == "v1.1":
        publish_version([smoke_suite], name)
    with pytest.raises(AlreadyExists, match="versions never change"):
        publish_version([smoke_suite], name)


def test_an_invalid_suite_is_not_published(smoke_suite: Path) -> None:
    smoke_suite.write_text(make_line(1) + "\n" + make_line(1) + "\n", encoding="utf-8")
    with pytest.raises(InvalidInput, match="duplicate id") as caught:
        publish_version([smoke_suite], "v1.1")
    assert caught.value.problems[0].file == str(smoke_suite)
    assert list(settings.published_suites_folder().iterdir()) == []


def test_invalid_version_and_tier_names_are_refused(smoke_suite: Path, tmp_path: Path) -> None:
    for name in ("../v2", "", ".hidden", "a/b", "v 2", "x" * 65):
        with pytest.raises(InvalidInput, match="a version is letters"):
            publish_version([smoke_suite], name)
    odd = tmp_path / "odd name.jsonl"
    odd.write_bytes(smoke_suite.read_bytes())
    with pytest.raises(InvalidInput, match="the file name gives the tier its name"):
        publish_version([odd], "v2")
    (tmp_path / "other").mkdir()
    twin = tmp_path / "other" / "smoke.jsonl"
    twin.write_bytes(smoke_suite.read_bytes())
    with pytest.raises(InvalidInput, match="another file already has the tier name"):
        publish_version([smoke_suite, twin], "v2")
    with pytest.raises(InvalidInput, match="built-in suites cannot be changed"):
        publish_version([smoke_suite], "v2", BUILT_IN_SUITES_FOLDER)


def test_one_of_many_concurrent_publications_wins(smoke_suite: Path) -> None:
    def attempt(_: int) -> bool:
        try:
            publish_version([smoke_suite], "v9")
        except AlreadyExists:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(16)))
    assert won.count(True) == 1
    assert [path.name for path in settings.published_suites_folder().iterdir()] == ["v9"]


def test_a_killed_publication_leaves_no_version(tmp_path: Path) -> None:
    big = tmp_path / "big.jsonl"
    big.write_text("\n".join(make_line(number) for number in range(60_000)), encoding="utf-8")
    home = settings.data_folder()
    with programs.start(["-m", "pramana", "suite", "publish", str(big), "--version", "v9"]) as process:
        while not list(home.glob("suites/.v9-*/big.jsonl")):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert [each.manifest.version for each in iterate_versions()] == ["v1.0"]
    assert publish_version([big], "v9").manifest.tiers["big"].test_count == 60_000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("version = ", r"manifest.toml:1:11: not valid TOML"),
        ('version = "v1"\n', "tiers: field required"),
        ("\x00", "not valid TOML"),
        (
            'version = "v1"\ncategories = []\nassertion_types = []\n[tiers.a]\nfile = "../a.jsonl"\n'
            'test_count = 1\nestimated_tokens = 1\nhash = "sha256:00"\n',
            "tiers.a.file",
        ),
    ],
)
def test_a_broken_manifest_is_reported_with_its_position(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "manifest.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput, match=message):
        open_version(tmp_path)


def test_a_folder_with_another_version_in_its_manifest_is_refused(smoke_suite: Path) -> None:
    folder = publish_version([smoke_suite], "v1.1").folder
    folder.rename(folder.with_name("v9"))
    with pytest.raises(InvalidInput, match=r'says version "v1\.1", but the folder is named "v9"'):
        find_version("v9")
    broken: list[Problem] = []
    assert [each.manifest.version for each in iterate_versions(broken)] == ["v1.0"]
    assert len(broken) == 1
    (verified,) = verify_version(
        open_version(folder.with_name("v9")), 10
    )  # any folder can be verified, whatever its name
    assert verified.verdict == "verified"


def test_leftovers_of_a_killed_publication_are_removed_later(smoke_suite: Path) -> None:
    left = settings.published_suites_folder() / ".v1.1-abandoned"
    left.mkdir(parents=True)
    os.utime(left, (0, 0))
    publish_version([smoke_suite], "v1.1")
    assert not left.exists()


def test_a_broken_manifest_hides_no_other_version(smoke_suite: Path) -> None:
    (publish_version([smoke_suite], "v1.1").folder / "manifest.toml").write_text("version = \n", encoding="utf-8")
    broken: list[Problem] = []
    assert [each.manifest.version for each in iterate_versions(broken)] == ["v1.0"]
    assert [(each.line, each.column, each.message) for each in broken] == [(1, 11, "not valid TOML: Invalid value")]


def test_a_tier_may_state_its_purpose_and_cost(smoke_suite: Path) -> None:
    version = publish_version(
        [smoke_suite], "v1.1", use_cases={"smoke": 'Before "every" merge'}, costs_usd={"smoke": 0.1}
    )
    tier = version.manifest.tiers["smoke"]
    assert (tier.use_case, tier.estimated_cost_usd) == ('Before "every" merge', 0.1)
    with pytest.raises(InvalidInput, match='no file for the tier "smok"; did you mean "smoke"'):
        publish_version([smoke_suite], "v1.2", use_cases={"smok": "x"})


@pytest.mark.parametrize("cost", [-5.0, float("nan"), float("inf")])
def test_values_that_would_not_round_trip_are_not_published(smoke_suite: Path, cost: float) -> None:
    with pytest.raises(InvalidInput):
        publish_version([smoke_suite], "v1.1", costs_usd={"smoke": cost})
    with pytest.raises(InvalidInput, match="is not text"):
        publish_version([smoke_suite], "v1.1", use_cases={"smoke": "\ud800"})
    assert list(settings.published_suites_folder().glob("*")) == []
    tier = publish_version([smoke_suite], "v1.1", use_cases={"smoke": "a\x7f\x1b\u2028"}).manifest.tiers["smoke"]
    assert tier.use_case == "a\x7f\x1b\u2028"


@pytest.mark.parametrize("text", ["a = " + "[" * 3000, "a = " + "9" * 5000, "#" * (2 << 20)])
def test_a_hostile_manifest_is_one_problem(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidInput) as caught:
        open_version(tmp_path)
    assert len(caught.value.problems) == 1


def test_only_regular_files_are_published_and_hashed(tmp_path: Path) -> None:
    device = tmp_path / "zero.jsonl"
    device.symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match="not a regular file"):
        publish_version([device], "v1.1")
    with pytest.raises(InvalidInput, match="not a regular file"):
        hash_suite(device)


def test_an_unknown_version_or_tier_suggests_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match=r'no suite version "v1"; there is v1.0$'):
        find_version("v1")
    with pytest.raises(NotFound, match=r'v1.0 has no tier "cheep".*did you mean "cheap"\?'):
        find_version("v1.0").verified_tier_path("cheep")
    with pytest.raises(NotFound, match="contains no manifest"):
        open_version(tmp_path)


@pytest.mark.parametrize("names", [["", "../outside"], ["../outside"], ["a/b"], [""], ["cheap", ""]])
def test_an_uploaded_tier_name_that_is_a_path_is_refused(tmp_path: Path, names: list[str]) -> None:
    line = '{"id": "a-1", "input": "Say yes.", "ideal": "yes", "assertion": {"type": "contains"}}'
    with pytest.raises(InvalidInput, match="letters, digits"):
        check_upload("v9", dict.fromkeys(names, line))
    assert not list(tmp_path.parent.rglob("outside.jsonl"))
