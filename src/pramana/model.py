"""The nouns every stage shares: a case, what is asserted of it, and one check of one reply.

Standard library only. Frozen and slotted, because a run holds many; plain data, because they are stored and hashed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

Role = Literal["system", "user", "assistant"]
CaseKind = Literal["test_case", "scenario"]


class Outcome(StrEnum):
    """How a check ended. An error is not a failure, and an unscored reply is not a wrong one."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    UNSCORED = "unscored"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of what is asked."""

    role: Role
    text: str


@dataclass(frozen=True, slots=True)
class Assertion:
    """What must hold of a reply, as a suite states it."""

    type: str
    case_sensitive: bool = True
    threshold: float | None = None
    judge_prompt: str | None = None
    schema: object = None
    """The JSON Schema of a `json_schema` assertion."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a case was read, for messages only: it is no part of the case's identity."""

    file: str
    line: int


@dataclass(frozen=True, slots=True)
class Facets:
    """What cases are selected and summarised by."""

    category: str
    """A test case's category or a scenario's type."""
    difficulty: str
    language: str | None = None
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Case:
    """One thing asked and what is expected of the answer."""

    id: str
    kind: CaseKind
    turns: tuple[Turn, ...]
    facets: Facets
    assertion: Assertion | None = None
    """A test case's assertion; None for a scenario."""
    ideals: tuple[str, ...] = ()
    name: str | None = None
    expected_outcome: str | None = None
    """A scenario's expected outcome; None for a test case."""
    prompt_audio_url: str | None = None
    tokens_est: int | None = None
    source: Source | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Check:
    """One judgement of one reply."""

    name: str
    version: str
    """Of the meaning, not of the program: results pooled from two versions must not be mixed."""
    outcome: Outcome
    reason: str
    value: float | None = None
    evidence: Mapping[str, object] = field(default_factory=dict)
    """Plain data: what matched, and where."""
