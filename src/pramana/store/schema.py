"""The tables, for both engines: SQLAlchemy Core metadata only, no functions.

A case is stored once by its digest; a run refers to its cases by position. A result is one row, written once and never
changed. Its checks are separate rows, numbered by scoring, so that rescoring adds rows beside the old ones. Tables are
joined by short integers: the unique index of the results then grows at its end instead of everywhere, which keeps a
group commit small.
"""

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    UniqueConstraint,
    false,
    text,
)

LATEST_MIGRATION = "0014"
"""The migration that matches the tables below; a store at this version is opened without loading Alembic."""

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    }
)

_IntegerType = BigInteger().with_variant(Integer, "sqlite")
"""64 bits in both engines: SQLite autoincrements only INTEGER, which is as wide."""

_OrderedText = Text().with_variant(Text(collation="C"), "postgresql")
"""Text that is searched by prefix: ordered by code point, whatever the locale."""

runs = Table(
    "runs",
    metadata,
    Column("run_no", _IntegerType, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("owner", Text, nullable=False),  # cli or server: who may resume it
    Column("status", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("finished", Text),
    Column("reason", Text),
    Column("notes", Text, nullable=False),
    Column("plan", Text, nullable=False),
    Column("plan_digest", Text, nullable=False),
    Column("expected", BigInteger, nullable=False),
    Column("stored", BigInteger, nullable=False),
    Column("lease_holder", Text),
    Column("lease_until", Double),  # seconds of the Unix clock
    Column("heartbeat", Double),
    Column("attempts", Integer, nullable=False),
    Column("limits", Text),  # JSON: the limits of a server's run, kept when another server resumes it
    Column("cancelled", Text),  # when its cancellation was requested
    Column("creator", Text),  # name of the token that created it
    Column("suite", _OrderedText, nullable=False, server_default=text("''")),  # the plan's suite, for filters
    Column("selection", Text),  # JSON: the plan's filters; null if it has all cases
    Column("name", Text),  # set by the user
    Column("note", Text),  # set by the user
    Index(None, "suite"),
    sqlite_autoincrement=True,
)

run_models = Table(  # the models of each plan, as typed
    "run_models",
    metadata,
    Column("run_no", _IntegerType, ForeignKey("runs.run_no"), nullable=False),
    Column("role", Text, nullable=False),  # target, judge, embedder or stt
    Column("model", Text, nullable=False),
    PrimaryKeyConstraint("run_no", "role", "model"),
    Index(None, "model", "role", "run_no"),
    sqlite_with_rowid=False,
)

cases = Table(
    "cases",
    metadata,
    Column("case_no", _IntegerType, primary_key=True),
    Column("digest", Text, nullable=False, unique=True),
    Column("body", Text, nullable=False),
    sqlite_autoincrement=True,
)

run_cases = Table(
    "run_cases",
    metadata,
    Column("run_no", _IntegerType, ForeignKey("runs.run_no"), nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("case_no", _IntegerType, ForeignKey("cases.case_no"), nullable=False),
    Column("source_file", Text),
    Column("source_line", BigInteger),
    PrimaryKeyConstraint("run_no", "position"),
    UniqueConstraint("case_no", "run_no"),
    sqlite_with_rowid=False,
)

results = Table(
    "results",
    metadata,
    Column("seq", _IntegerType, primary_key=True),
    Column("run_no", _IntegerType, nullable=False),
    Column("case_no", _IntegerType, nullable=False),
    Column("model", Text, nullable=False),
    Column("variant", Text, nullable=False),
    Column("repeat", Integer, nullable=False),
    Column("case_id", Text, nullable=False),
    Column("outcome", Text, nullable=False),  # of the scoring that came with the reply
    Column("output", Text),  # the reply's text; null when there is no reply
    Column("input_tokens", BigInteger),
    Column("output_tokens", BigInteger),
    Column("cached_tokens", BigInteger),
    Column("served_model", Text),
    Column("fingerprint", Text),
    Column("finish_reason", Text),
    Column("first_token_s", Double),
    Column("total_s", Double),
    Column("raw", LargeBinary),  # JSON in UTF-8, or the zlib stream of it: no JSON begins with zlib's first byte
    Column("dropped", Text),
    Column("cost_usd", Double),
    Column("cached", Boolean),
    Column("failure_code", Text),
    Column("failure_message", Text),
    Column("result_hash", Text),
    Column("digest", Text),
    Column("conversation", Text),  # JSON: answers line by line, the digests of recording and log
    ForeignKeyConstraint(["case_no", "run_no"], ["run_cases.case_no", "run_cases.run_no"]),
    UniqueConstraint("run_no", "case_no", "model", "variant", "repeat"),
    Index(None, "run_no", "seq", "outcome"),
    sqlite_autoincrement=True,
)

scorings = Table(
    "scorings",
    metadata,
    Column("run_no", _IntegerType, ForeignKey("runs.run_no"), nullable=False),
    Column("scoring", Integer, nullable=False),
    Column("label", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("finished", Text),  # null while checks are being added; not visible until then
    Column("base", Integer),  # the scoring that it extends, if that was not the newest
    Column("chosen", Integer),  # the newest scoring when this one was chosen; a newer scoring ends the choice
    PrimaryKeyConstraint("run_no", "scoring"),
    sqlite_with_rowid=False,
)

checks = Table(
    "checks",
    metadata,
    Column("seq", _IntegerType, ForeignKey("results.seq"), nullable=False),
    Column("scoring", Integer, nullable=False),
    Column("position", Integer, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("value", Double),
    Column("evidence", Text),
    PrimaryKeyConstraint("seq", "scoring", "position"),
    sqlite_with_rowid=False,
)

labels = Table(  # people's verdicts on replies that a judge judged
    "labels",
    metadata,
    Column("seq", _IntegerType, ForeignKey("results.seq"), nullable=False),
    Column("criterion", Text, nullable=False),  # which judged check of the result: llm_judge, or llm_judge:1
    Column("rater", Text, nullable=False),
    Column("run_no", _IntegerType, ForeignKey("runs.run_no"), nullable=False),
    Column("verdict", Text, nullable=False),  # yes, no or unsure
    Column("note", Text, nullable=False),
    Column("scoring", Integer),  # whose verdicts the reply was drawn by; null if it was not drawn
    Column("labelled", Text, nullable=False),
    PrimaryKeyConstraint("seq", "criterion", "rater"),
    Index(None, "run_no"),
    sqlite_with_rowid=False,
)

rejudgements = Table(  # verdicts of judges that were asked again, to measure position bias
    "rejudgements",
    metadata,
    Column("seq", _IntegerType, ForeignKey("results.seq"), nullable=False),
    Column("criterion", Text, nullable=False),  # which judged check of the result, as in labels
    Column("judge", Text, nullable=False),
    Column("earlier_version", Text, nullable=False),  # of the check whose verdict was asked for again
    Column("prompt_order", Text, nullable=False),
    Column("run_no", _IntegerType, ForeignKey("runs.run_no"), nullable=False),
    Column("earlier_outcome", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("version", Text, nullable=False),  # of the new check, different for each order of the prompt
    Column("outcome", Text, nullable=False),
    Column("reason", Text, nullable=False),
    Column("value", Double),
    Column("evidence", Text),
    Column("created", Text, nullable=False),
    PrimaryKeyConstraint("seq", "criterion", "judge", "earlier_version", "prompt_order"),
    Index(None, "run_no"),
    sqlite_with_rowid=False,
)

# ── Tables of a server ──

scenarios = Table(
    "scenarios",
    metadata,
    Column("scenario_no", _IntegerType, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("type", Text, nullable=False),
    Column("difficulty", Text, nullable=False),
    Column("language", Text, nullable=False),
    Column("tags", Text, nullable=False),  # JSON array
    Column("body", Text, nullable=False),  # the whole scenario: a `model.Scenario` in JSON
    Column("created", Text, nullable=False),
    Column("updated", Text, nullable=False),
    sqlite_autoincrement=True,
)

deleted_scenarios = Table(
    "deleted_scenarios",
    metadata,
    Column("id", Text, primary_key=True),
    Column("body", Text, nullable=False),
    Column("created", Text, nullable=False),
    Column("updated", Text, nullable=False),
    Column("deleted", Text, nullable=False),
)

suite_tiers = Table(
    "suite_tiers",
    metadata,
    Column("version", Text, nullable=False),
    Column("tier", Text, nullable=False),
    Column("hash", Text, nullable=False),
    Column("test_count", BigInteger, nullable=False),
    Column("estimated_tokens", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),  # JSONL, compressed by zlib
    Column("created", Text, nullable=False),
    PrimaryKeyConstraint("version", "tier"),
    Index(None, "hash"),
)

providers = Table(
    "providers",
    metadata,
    Column("id", Text, primary_key=True),  # the prefix of a model's name: id:MODEL
    Column("kind", Text, nullable=False),
    Column("arguments", Text, nullable=False),  # JSON: base URL, agent, description
    Column("secret", Text),  # the key, encrypted by the vault
    Column("created", Text, nullable=False),
    Column("updated", Text, nullable=False),
)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Text, primary_key=True),
    Column("name", Text, nullable=False),
    Column("role", Text, nullable=False),
    Column("hash", Text, nullable=False, unique=True),  # SHA-256 of the token
    Column("created", Text, nullable=False),
    Column("used", Text),
    Column("revoked", Text),
    Column("expires", Text),  # NULL: never
)

sessions = Table(
    "sessions",
    metadata,
    Column("hash", Text, primary_key=True),  # SHA-256 of the session's secret
    Column("token_id", Text, ForeignKey("tokens.id"), nullable=False),
    Column("expires", Text, nullable=False),
)

preferences = Table(
    "preferences",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),  # JSON
    Column("updated", Text, nullable=False),
)

changes = Table(
    "changes",
    metadata,
    Column("change_no", _IntegerType, primary_key=True),
    Column("at", Text, nullable=False),
    Column("kind", Text, nullable=False),  # a `ChangeKind`
    Column("subject", Text, nullable=False),
    Column("action", Text, nullable=False),
    sqlite_autoincrement=True,
)

# ── Community results ──

submission_series = Table(  # one model's replies to one prompt of one suite, over time
    "submission_series",
    metadata,
    Column("series_no", _IntegerType, primary_key=True),
    Column("verified", Boolean, nullable=False),  # whether the suite was known; both kinds are kept separate
    Column("model", Text, nullable=False),
    Column("suite_hash", Text, nullable=False),  # empty: none was stated
    Column("prompt", Text, nullable=False),
    UniqueConstraint("model", "suite_hash", "prompt", "verified"),
    sqlite_autoincrement=True,
)

submissions = Table(
    "submissions",
    metadata,
    Column("submission_no", _IntegerType, primary_key=True),
    Column("digest", LargeBinary, nullable=False),  # of the content; unique per day
    Column("day", Text, nullable=False),  # of the reply, in UTC
    Column("series_no", _IntegerType, ForeignKey("submission_series.series_no"), nullable=False),
    Column("received", Text, nullable=False),
    Column("stated", Text),  # time of the reply, as stated by its contributor
    Column("contributor", Text, nullable=False),  # ID of a token, or anonymous
    Column("batch", Text),
    Column("copies", BigInteger, nullable=False),  # how many times it was submitted that day
    Column("suite_version", Text),
    Column("temperature", Double),
    Column("seed", BigInteger),
    Column("output", Text, nullable=False),
    Column("output_hash", LargeBinary, nullable=False),
    Column("salt", LargeBinary, nullable=False),
    Column("commitment", LargeBinary, nullable=False),  # SHA-256 of salt and output hash: safe to publish
    Column("score", Double),
    Column("passed", Boolean),
    Column("fingerprint", Text),  # system fingerprint, as reported by the provider
    Column("runner_version", Text),
    Column("result_hash", Text),
    Column("latency_ms", Double),
    Column("verdict", Text),  # JSON
    Column("metadata", Text),  # JSON
    UniqueConstraint("digest", "day"),
    Index(None, "series_no", "day", "output_hash"),
    sqlite_autoincrement=True,
)

submission_cells = Table(  # the outputs of one series on one day
    "submission_cells",
    metadata,
    Column("day", Text, nullable=False),
    Column("series_no", _IntegerType, ForeignKey("submission_series.series_no"), nullable=False),
    Column("outputs", BigInteger, nullable=False),  # number of distinct outputs
    Column("all_outputs", LargeBinary, nullable=False),  # XOR of their hashes: equal for equal sets
    Column("changed", Boolean, nullable=False),  # whether they differ from the previous day with outputs
    PrimaryKeyConstraint("day", "series_no"),  # a batch mostly has one day, so its rows are adjacent
    sqlite_with_rowid=False,
)

submission_days = Table(  # the data of the chart
    "submission_days",
    metadata,
    Column("verified", Boolean, nullable=False),
    Column("model", Text, nullable=False),
    Column("day", Text, nullable=False),
    *(
        Column(name, BigInteger, nullable=False)
        for name in ("submissions", "duplicates", "prompts", "outputs", "steady", "changed", "scored", "passed")
    ),
    PrimaryKeyConstraint("verified", "model", "day"),
    sqlite_with_rowid=False,
)

deliveries = Table(  # what this installation has submitted, and where
    "deliveries",
    metadata,
    Column("subject", Text, nullable=False),  # a run's ID, or the digest of a block of a file
    Column("url", Text, nullable=False),
    Column("delivered", Text, nullable=False),
    PrimaryKeyConstraint("subject", "url"),
)

# ── Watches: a model observed over days ──

watches = Table(
    "watches",
    metadata,
    Column("watch_no", _IntegerType, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("name", Text),
    Column("note", Text),
    Column("owner", Text, nullable=False),  # cli or server: what its runs may access
    Column("creator", Text),  # name of the token that created it
    Column("created", Text, nullable=False),
    Column("stopped", Text),  # when its user stopped it
    Column("model", Text, nullable=False),  # as typed
    Column("request", Text, nullable=False),  # JSON: the `RunRequest` of each day
    Column("budget_usd", Double),  # per day; null: no limit
    Column("at", Text),  # HH:MM in UTC; null: at any time of the day
    Column("baseline_days", Integer, nullable=False),
    Column("instruments", Text, nullable=False),  # JSON array, fixed when the watch begins
    Column("delivery", Text),  # JSON: where its alerts are sent
    Column("delivery_secret", Text),  # the secret that signs them, encrypted by the vault
    Column("public", Boolean, nullable=False, server_default=false()),  # whether anyone may read it
    sqlite_autoincrement=True,
)

watch_periods = Table(  # the days that share one baseline
    "watch_periods",
    metadata,
    Column("watch_no", _IntegerType, ForeignKey("watches.watch_no"), nullable=False),
    Column("period", Integer, nullable=False),
    Column("begins", Text, nullable=False),  # its first possible day
    Column("reason", Text, nullable=False),
    Column("note", Text),
    Column("basis", Text),  # JSON: plan, cases and check versions of its first measured day
    Column("created", Text, nullable=False),
    PrimaryKeyConstraint("watch_no", "period"),
)

watch_days = Table(
    "watch_days",
    metadata,
    Column("watch_no", _IntegerType, ForeignKey("watches.watch_no"), nullable=False),
    Column("day", Text, nullable=False),  # in UTC: 2026-11-19
    Column("period", Integer, nullable=False),
    Column("status", Text, nullable=False),  # measuring, measured or missing
    Column("reason", Text),  # why it is missing
    Column("tie_break", Double, nullable=False),  # drawn once, from -0.5 to 0.5
    Column("planned", BigInteger, nullable=False, server_default=text("0")),  # calls
    Column("answered", BigInteger, nullable=False, server_default=text("0")),
    Column("features", Text),  # JSON with a version: what was measured of each prompt
    Column("decision", Text),  # JSON: score, statistics and level of each instrument on that day
    Column("created", Text, nullable=False),
    Column("ended", Text),
    PrimaryKeyConstraint("watch_no", "day"),
)

watch_runs = Table(  # without a foreign key to the run: a day keeps its features when its run is deleted
    "watch_runs",
    metadata,
    Column("watch_no", _IntegerType, ForeignKey("watches.watch_no"), nullable=False),
    Column("run_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("purpose", Text, nullable=False),  # batch, search, answers, logprobs or confirm
    PrimaryKeyConstraint("watch_no", "run_id"),
    Index(None, "run_id"),
)

watch_alerts = Table(
    "watch_alerts",
    metadata,
    Column("alert_no", _IntegerType, primary_key=True),
    Column("id", Text, nullable=False, unique=True),
    Column("watch_no", _IntegerType, ForeignKey("watches.watch_no"), nullable=False),
    Column("period", Integer, nullable=False),
    Column("level", Text, nullable=False),  # notice or alarm
    Column("day", Text, nullable=False),
    Column("body", Text, nullable=False),  # JSON: what is delivered
    Column("created", Text, nullable=False),
    Column("delivered", Text),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("next_attempt", Double),  # seconds of the Unix clock
    Column("error", Text),  # why the last attempt failed
    UniqueConstraint("watch_no", "period", "level"),
    sqlite_autoincrement=True,
)
