"""`pramana submit`: finished runs, or a results file, to a server that collects community results.

Runs are sent one after another. Each is marked as submitted when all of it has arrived; the first failure stops, and
the rest is left for the next time. It sends the model, the prompt's id, the output, the verdict and the request's
settings; never a key, a raw response or a system prompt.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import click

from pramana import clock
from pramana.errors import InvalidInput, PramanaError, Problem, escape_control_characters
from pramana.model import Outcome, Run
from pramana.report import terminal
from pramana.show.cli.options import SERVER_TOKEN_OPTION, open_local_store
from pramana.show.remote import ServerClient, ServerFailed, ServerResponse

if TYPE_CHECKING:
    from pramana.load.results import ModelResults
    from pramana.store.store import Store

MAX_RESULTS, MAX_BYTES = 1_000, 8 << 20
"""Limits of one request; the second is a quarter of a server's default limit."""
LONGEST_OUTPUT, LONGEST_NAME = 1 << 20, 256
LONGEST_WAIT_S, MAX_WAITS = 300.0, 10
_COUNT_NAMES = ("sent", "accepted", "duplicates", "refused", "left_out")
_SENT_FIELDS_NOTE = (
    "Sent to the server: model, prompt ID, output, score and verdict, time, temperature, seed, suite version and "
    "hash; never keys, raw responses or system prompts."
)


@dataclass
class _Delivery:
    """A run, or a block of a file, being sent."""

    submission_key: str
    """The key under which it is marked as submitted: the id of a run, the digest of a block."""
    name: str
    shared_fields: dict[str, Any]
    iterate_results: Callable[["_Delivery"], Iterable[dict[str, Any]]]
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_COUNT_NAMES, 0))
    notes: list[str] = field(default_factory=list)


@click.command()
@click.argument("run_or_file", metavar="RUN|FILE", required=False)
@click.option("--to", "url", metavar="URL", required=True, help="Server address, such as http://localhost:3000")
@SERVER_TOKEN_OPTION
@click.option("--again", is_flag=True, help="Also submit runs that were submitted before")
@click.option("--json", "as_json", is_flag=True, help="Print JSON")
def submit(run_or_file: str | None, *, url: str, token: str | None, again: bool, as_json: bool) -> int:
    """Submit results to a community server: a run, a results.json, or every finished run not submitted yet.

    Runs are sent one at a time. After a failure, no more runs are sent; repeat the command to submit the rest. Exit
    code: 0 if everything was submitted, 2 if something is not valid or not allowed, 3 if the work could not be
    finished.

    """

    def say(line: str) -> None:
        if not as_json:
            click.echo(escape_control_characters(line), err=True)

    receiver = ServerClient(_normalise_url(url), token, returns_429_responses=True)
    done: list[_Delivery] = []
    failure: PramanaError | None = None
    with open_local_store() as store:
        there = set() if again else store.submissions.list_delivered_keys(receiver.url)
        parcels = _list_deliveries(store, run_or_file)
        pending = [each for each in parcels if each.submission_key not in there]
        if pending:
            say(_SENT_FIELDS_NOTE)
        for number, parcel in enumerate(pending, 1):
            say(f"{number} of {len(pending)}: {parcel.name}")
            try:
                _send_delivery(receiver, parcel, say)
            except PramanaError as error:
                failure = error
                break
            store.submissions.mark_delivered(parcel.submission_key, receiver.url)
            done.append(parcel)
            say(f"  {_describe_delivery(parcel)}")
    _print_report(receiver.url, done, len(pending) - len(done), len(parcels) - len(pending), failure, as_json=as_json)
    return failure.exit_code if failure else 0


def _normalise_url(url: str) -> str:
    """Return a URL in the normal form under which it is stored: one spelling per server."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url  # opening it reports what is wrong with it
    return urlunsplit((parts.scheme.lower(), parts.netloc.lower(), parts.path.rstrip("/"), parts.query, ""))


def _describe_delivery(delivery: _Delivery) -> str:
    counts = delivery.counts
    said = [f"{counts['accepted']:,} accepted"]
    said += [f"{counts[name]:,} {name.replace('_', ' ')}" for name in _COUNT_NAMES[2:] if counts[name]]
    return ", ".join(said) + "".join(f"; {each}" for each in delivery.notes)


def _print_report(
    url: str,
    sent_deliveries: list[_Delivery],
    unsent_count: int,
    submitted_before_count: int,
    failure: PramanaError | None,
    *,
    as_json: bool,
) -> None:
    if as_json:
        said = failure and {"error": str(failure), "code": failure.code}
        sent = [
            {"subject": each.submission_key, "name": each.name, **each.counts, "notes": each.notes}
            for each in sent_deliveries
        ]
        there = {"to": url, "submitted": sent, "submitted_before": submitted_before_count}
        terminal.print_json({**there, "remaining": unsent_count, "failure": said})
        return
    if failure:
        click.echo(f"pramana: {escape_control_characters(str(failure))}", err=True)
        for problem in failure.problems[:10] if isinstance(failure, InvalidInput) else ():
            click.echo(f"  {escape_control_characters(str(problem))}", err=True)
        click.echo(
            f"{terminal.pluralise(unsent_count, 'run')} not submitted; repeat the command to submit the rest.", err=True
        )
    elif not sent_deliveries:
        known = (
            f"; {terminal.pluralise(submitted_before_count, 'run')} submitted before" if submitted_before_count else ""
        )
        click.echo(f"Nothing to submit{known}.")
    if sent_deliveries:
        results = sum(each.counts["accepted"] for each in sent_deliveries)
        click.echo(f"Submitted {terminal.pluralise(len(sent_deliveries), 'run')} to {url}: {results:,} new results.")


# ── Collecting ──


def _list_deliveries(store: "Store", run_or_file: str | None) -> list[_Delivery]:
    if run_or_file is None:
        found = [run for run in reversed(store.runs.read_page(limit=1_000_000)[0]) if run.status == "finished"]
        return [_run_to_delivery(store, run) for run in found]
    if Path(run_or_file).is_file() or run_or_file.endswith(".json"):
        from pramana.load.results import read_results

        return [_block_to_delivery(block, run_or_file) for block in read_results(run_or_file)]
    run = store.runs.find(run_or_file)
    if run.status != "finished":
        raise InvalidInput(f"run {run.id} is {run.status}; finish it first: pramana run --resume {run.id}")
    return [_run_to_delivery(store, run)]


def _run_to_delivery(store: "Store", run: Run) -> _Delivery:
    plan = run.plan
    whole = plan.suite_hash if plan.system_prompt is None else None
    shared = {
        "suite_version": plan.suite[:LONGEST_NAME],
        "suite_hash": whole,
        "temperature": _nonnegative_number_or_none(plan.parameters.get("temperature")),
        "seed": _valid_integer_or_none(plan.parameters.get("seed")),
        "timestamp": run.created,
        "runner_version": plan.runner_version[:LONGEST_NAME] or None,
    }
    models = {target.typed: target for target in plan.targets}
    others = {name: plan.parameters[name] for name in ("top_p", "max_tokens", "stop") if name in plan.parameters}

    def results(parcel: _Delivery) -> Iterator[dict[str, Any]]:
        from pramana.report.exports import get_result_score

        for case, result in store.results.iterate_with_cases(run.id):
            reply, target = result.reply, models[result.key.model]
            if reply is None or result.key.variant != "text":
                parcel.counts["left_out"] += 1
                continue
            noted: dict[str, Any] = {
                "provider": target.provider,
                "case_digest": result.key.case,
                "repeat": result.key.repeat,
                "served_model": reply.served_model,
                "fingerprint": reply.fingerprint,
                "dropped": list(reply.dropped),
                "parameters": others,
            }
            checks = [{"name": each.name, "version": each.version, "outcome": each.outcome} for each in result.checks]
            yield {
                "model_id": target.model,
                "prompt_id": case.id,
                "output": reply.text,
                "score": get_result_score(case, result),
                "assertion_result": _make_assertion_result(result.outcome, checks=checks),
                "latency_ms": round(reply.total_s * 1000, 3),
                "result_hash": result.result_hash,
                "metadata": {name: value for name, value in noted.items() if value not in (None, [], {})},
            }

    parcel = _Delivery(run.id, f"run {run.id} ({plan.suite}: {', '.join(models)})", shared, results)
    if plan.suite_hash and whole is None:
        parcel.notes.append(_CUSTOM_SYSTEM_PROMPT_NOTE)
    return parcel


_CUSTOM_SYSTEM_PROMPT_NOTE = "sent as results of an unknown suite, because the run had its own system prompt"
_PASSED_BY_OUTCOME = {Outcome.PASSED: True, Outcome.FAILED: False}


def _make_assertion_result(outcome: Outcome, **details: Any) -> dict[str, Any]:
    return {"passed": _PASSED_BY_OUTCOME.get(outcome), "details": {"outcome": outcome, **details}}


def _block_to_delivery(block: "ModelResults", file_name: str) -> _Delivery:
    whole = None if block.system_prompt else block.suite_hash
    shared = {
        "suite_version": block.suite_version[:LONGEST_NAME],
        "suite_hash": whole,
        "temperature": _nonnegative_number_or_none(block.temperature),
        "seed": _valid_integer_or_none(block.seed),
        "timestamp": block.timestamp,
        "runner_version": block.runner_version and block.runner_version[:LONGEST_NAME],
    }

    def results(parcel: _Delivery) -> Iterator[dict[str, Any]]:
        for each in block.results:
            if each.variant != "text" or (each.outcome in (Outcome.ERRORED, Outcome.SKIPPED) and not each.output):
                parcel.counts["left_out"] += 1  # no typed output to submit
                continue
            score = float(each.outcome is Outcome.PASSED) if each.score is None else each.score
            yield {
                "model_id": block.model_id,
                "prompt_id": each.test_id,
                "output": each.output,
                "score": score if each.outcome in _PASSED_BY_OUTCOME and 0 <= score <= 1 else None,
                "assertion_result": _make_assertion_result(each.outcome),
                "latency_ms": _nonnegative_number_or_none(each.latency_ms),
                "result_hash": each.result_hash and each.result_hash[:LONGEST_NAME],
                "metadata": {"repeat": each.repeat},
            }

    digest = hashlib.sha256()
    for each in block.results:
        said = (each.test_id, str(each.repeat), each.variant, each.outcome.value, each.output)
        digest.update(hashlib.sha256("\0".join(said).encode("utf-8", "surrogatepass")).digest())
    digest.update(repr((block.model_id, *sorted(shared.items()))).encode("utf-8", "surrogatepass"))
    parcel = _Delivery(f"sha256:{digest.hexdigest()}", f"{block.model_id} of {file_name}", shared, results)
    if block.suite_hash and whole is None:
        parcel.notes.append(_CUSTOM_SYSTEM_PROMPT_NOTE)
    return parcel


def _nonnegative_number_or_none(value: Any) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) and value >= 0 else None


def _valid_integer_or_none(value: Any) -> int | None:
    return value if type(value) is int and -(2**63) <= value < 2**63 else None


# ── Sending ──


def _send_delivery(receiver: ServerClient, delivery: _Delivery, print_line: Callable[[str], None]) -> None:
    """Send all of a run; raise if the server refuses anything."""
    for body, count in _make_request_bodies(delivery):
        data = _send_body(receiver, body, print_line)
        delivery.counts["sent"] += count
        for name in ("accepted", "duplicates", "refused"):
            delivery.counts[name] += data[name]
        if data["refused"] and len(delivery.notes) < 3:
            delivery.notes.append(str(next((each["reason"] for each in data["results"] if each["reason"]), "")))


def _make_request_bodies(delivery: _Delivery) -> Iterator[tuple[bytes, int]]:
    """Yield the request bodies of a run, each within the limits, with the number of its results."""
    head = terminal.to_json(delivery.shared_fields)[:-1].encode()
    gathered: list[bytes] = []
    size = 0

    def encode_body() -> bytes:
        return head + b', "results": [' + b",".join(gathered) + b"]}"

    for each in delivery.iterate_results(delivery):
        long = max(len(each["model_id"]), len(each["prompt_id"])) > LONGEST_NAME
        if long or not each["prompt_id"] or len(each["output"].encode("utf-8", "surrogatepass")) > LONGEST_OUTPUT:
            delivery.counts["left_out"] += 1
            continue
        one = terminal.to_json(each).encode()
        if gathered and (len(gathered) == MAX_RESULTS or size + len(one) > MAX_BYTES):
            yield encode_body(), len(gathered)
            gathered, size = [], 0
        gathered.append(one)
        size += len(one)
    if gathered:
        yield encode_body(), len(gathered)


def _send_body(receiver: ServerClient, body: bytes, print_line: Callable[[str], None]) -> dict[str, Any]:
    for attempt in range(MAX_WAITS + 1):
        said = receiver.send_request("POST", "/api/submit/batch", body=body)
        if said.status != 429:
            break
        wait = _choose_wait_s(said, attempt)
        if attempt == MAX_WAITS or wait > LONGEST_WAIT_S:
            raise ServerFailed(f"{receiver.url} accepts no requests for {wait:.0f} s; try again later")
        print_line(f"  the server asks to wait {wait:.0f} s")
        clock.sleep(wait)
    answer = said.json
    if not said.ok:
        details = answer.get("details") or []
        problems = [Problem(str(each.get("message")), str(each.get("path"))) for each in details]
        raise InvalidInput(f"{receiver.url}: {answer.get('error')}", problems)
    data: Any = answer.get("data")
    try:
        return {**{name: int(data[name]) for name in _COUNT_NAMES[1:4]}, "results": data["results"]}
    except (TypeError, KeyError, ValueError):
        raise ServerFailed(
            "the server at this address does not answer as a Pramana server does; check the address"
        ) from None


def _choose_wait_s(response: ServerResponse, attempt: int) -> float:
    """Return the seconds to wait: the server's Retry-After, or else longer with each attempt."""
    try:
        return max(0.0, float(response.headers.get("Retry-After", "")))
    except ValueError:
        return min(2.0**attempt, 60.0)
