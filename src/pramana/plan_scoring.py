"""What scores the replies of a plan: the plan and the open clients of a run go in; judges and scorers come out.

A run and a rescoring use the same: the judge, the similarity of an embedder, the measurements of calls, and the user's
scorers. All of their requests pass the limits of the clients; models without a price are refused beforehand where a
cost limit is set. Nothing here sends a request.
"""

import json
from collections.abc import Sequence
from functools import cache

from pramana import settings
from pramana.analyse.judges import NON_JUDGE_PROVIDERS
from pramana.errors import InvalidInput
from pramana.model import Plan, PlannedScorer, PromptOrder, Reply, Request, Target, Usage
from pramana.planning import resolve_model
from pramana.providers.names import is_voice_agent
from pramana.providers.prices import FUNCTION_KIND, Prices
from pramana.request import Limits
from pramana.run.accounts import ProviderAccess, RunClients
from pramana.score.judge import Judge
from pramana.score.panel import PANEL_SEPARATOR
from pramana.score.scorers import ScorerRunner, find_planned_scorers
from pramana.score.scoring import NO_JUDGE_REASON, VOICE_JUDGE_REASON, ReplyChecker
from pramana.score.similarity import SimilarityScorer, make_embed
from pramana.score.speech import CallScorer
from pramana.store.store import Store

# ── Judges, similarity and scorers ──


def make_call_scorer(store: Store, plan: Plan, clients: RunClients) -> CallScorer:
    """Return what measures the calls of a plan."""
    return CallScorer(store.blobs.get, clients.make_recording_recognition(plan.stt), by_whisper=plan.stt is None)


def make_reply_checker(
    plan: Plan,
    target: Target,
    clients: RunClients,
    similarity: SimilarityScorer,
    call_scoring: CallScorer,
    scorers: ScorerRunner,
    no_judge_reason: str = "",
) -> ReplyChecker:
    """Return all checks for the replies of one model of a plan.

    `no_judge_reason` is the reason if it cannot judge itself.
    """
    agent = is_voice_agent(target) and target.provider not in NON_JUDGE_PROVIDERS
    named = plan.judges or (() if no_judge_reason else (target,))
    judges = make_judges(named, clients)
    return ReplyChecker(
        judges[0] if judges else None,
        similarity,
        call_scoring,
        no_judge_reason or (VOICE_JUDGE_REASON if agent else NO_JUDGE_REASON),
        scorers,
        target.typed,
        judges[1:],
    )


def check_judge_usable(plan: Plan, clients: RunClients) -> None:
    """Raise an error if the judge cannot be used (missing key, unknown function) before any reply is judged."""
    for judge in plan.judges:
        clients.get_text_client(judge)


def make_judges(targets: Sequence[Target], clients: RunClients, prompt_order: PromptOrder = "usual") -> list[Judge]:
    """Return those of some models that can judge."""
    return [judge for each in targets if (judge := _make_judge(each, clients, prompt_order))]


def _make_judge(target: Target, clients: RunClients, prompt_order: PromptOrder = "usual") -> Judge | None:
    """Return a model as a judge, or None for the embedded model and for voice agents."""
    if target.provider in NON_JUDGE_PROVIDERS or is_voice_agent(target):
        return None

    async def ask(request: Request) -> Reply:
        return await clients.get_text_client(target)(request)  # opened on first use: not every suite needs a judge

    return Judge(ask, target.model, target.typed, must_rate=target.provider != FUNCTION_KIND, prompt_order=prompt_order)


def open_scorers(
    plan: Plan, clients: RunClients, prices: Prices, limits: Limits, reach: ProviderAccess
) -> ScorerRunner:
    """Return the scorers of a plan; requests to models that they name count toward the run's limits."""
    if not plan.scorers:
        return ScorerRunner()

    @cache
    def judge_by_name(typed: str) -> Judge:
        target = resolve_model(typed, reach)
        if limits.max_cost_usd is not None and not prices.can_count_cost(target):
            raise InvalidInput(f"a cost limit needs a price, and no price is known for {typed}")
        if reach.free_models_only and prices.may_cost(target):
            raise InvalidInput(f"{typed} may cost money, and this run has no cost limit; set a cost limit")
        judge = _make_judge(target, clients)
        if judge is None:
            raise InvalidInput(
                f"{typed} cannot be asked: {VOICE_JUDGE_REASON if is_voice_agent(target) else NO_JUDGE_REASON}"
            )
        return judge

    return ScorerRunner(
        find_planned_scorers(plan.scorers, reach.passed_functions.scorers),
        judge_by_name,
        reach.passed_functions.loop,
        limits.timeout_s,
    )


def make_similarity(plan: Plan, clients: RunClients) -> SimilarityScorer:
    """Return what scores `semantic_similarity`: by the embedder of a plan, or by the embedded model."""
    if (embedder := plan.embedder) is None:
        return SimilarityScorer()
    asked = make_embed(clients.get_embedding_client(embedder), embedder.model)
    return SimilarityScorer(asked, f"{embedder.provider}:{embedder.model}")


# ── Prices ──


def refuse_unknown_prices(plan: Plan, prices: Prices, limits: Limits, reach: ProviderAccess) -> None:
    """Refuse a cost limit together with a model whose price is not known."""
    asked = [*plan.targets, *plan.judges, *([plan.embedder] if plan.embedder else [])]
    # Looked up in any case, before the first request: reading the price list takes 0.2 s, which would delay a reply.
    unknown = [target.typed for target in asked if not prices.can_count_cost(target)]
    _refuse_uncountable_cost(plan, prices, limits)
    if unknown and limits.max_cost_usd is not None:
        names = ", ".join(unknown)
        where = settings.prices_file_path()
        if reach.is_for_other_users:  # users of a server can neither see nor change its files
            raise InvalidInput(
                f"a cost limit needs a price, and no price is known for {names}; an administrator can set the "
                "price: Settings, Prices"
            )
        raise InvalidInput(
            f"a cost limit needs a price, and no price is known for {names}; add the price to {where}, in "
            "dollars per million tokens:\n"
            f"  [prices.{json.dumps(unknown[0])}]\n  input_per_million = 1.25\n  output_per_million = 10.0"
        )


def _refuse_uncountable_cost(plan: Plan, prices: Prices, limits: Limits) -> None:
    """Refuse a cost limit that cannot be kept: speech-to-text endpoints do not report their cost."""
    stt = plan.stt
    if stt and limits.max_cost_usd is not None and prices.cost(stt, None, Usage(1, 1)) != 0:
        raise InvalidInput(
            f"a cost limit cannot count what the speech recognition {stt.typed} costs; run without a cost limit or "
            "without speech recognition, or, if it is free of charge, set its prices to 0 in "
            f"{settings.prices_file_path()}"
        )


# ── Label ──


def make_scoring_label(judges: Sequence[Target], embedder: Target | None, scorers: Sequence[PlannedScorer]) -> str:
    """Return the label of a scoring: its judges, embedder and scorers."""
    label = f"judged by {PANEL_SEPARATOR.join(each.typed for each in judges) or 'itself'}"
    label += f", embedded by {embedder.typed}" if embedder else ""
    return label + (f", scored by {', '.join(f'{each.name} {each.version}' for each in scorers)}" if scorers else "")
