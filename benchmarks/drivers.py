"""The driver files of the rivals in `benchmarks.overhead`: one small file each, in the tool's own language.

They are written beside the cases and read them from there. Never imported here: each belongs to another environment.
"""

INSPECT = """
from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import includes


@task
def overhead():
    fields = FieldSpec(input="input", target="ideal", id="id")
    return Task(dataset=json_dataset("cheap.jsonl", fields), scorer=includes())
"""

PROMPTFOO = """
prompts: ["{{input}}"]
providers:
  - id: openai:chat:any
    config: {temperature: 0, seed: 42}
defaultTest:
  assert:
    - type: icontains-any
      value: ["yes", "yeah"]
tests: file://tests.jsonl
"""

_DEEPEVAL = '''
import asyncio, json, sys
from deepeval import evaluate
from deepeval.dataset import EvaluationDataset, Golden
from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.metrics import BaseMetric
from deepeval.test_case import LLMTestCase
from deepeval.tracing import observe, update_current_trace
from openai import AsyncOpenAI

path, url, concurrency = sys.argv[1], sys.argv[2], int(sys.argv[3])
cases = [json.loads(line) for line in open(path)]
client = AsyncOpenAI(base_url=url, api_key="none")
scores = []


class ContainsAny(BaseMetric):
    """It ships no such metric: PatternMatch must match the whole answer. This is its custom metric, as documented."""

    def __init__(self, terms):
        self.terms, self.threshold, self.async_mode = terms, 1.0, True

    def measure(self, test_case, *args, **kwargs):
        output = test_case.actual_output.lower()
        self.score = float(any(term in output for term in self.terms))
        self.success = self.score >= self.threshold
        scores.append(self.score)
        return self.score

    async def a_measure(self, test_case, *args, **kwargs):
        return self.measure(test_case)

    def is_successful(self):
        return self.success

    @property
    def __name__(self):
        return "Contains Any"


async def ask(prompt):
    reply = await client.chat.completions.create(
        model="any", temperature=0, seed=42, messages=[{"role": "user", "content": prompt}]
    )
    return reply.choices[0].message.content


settings = {
    "async_config": AsyncConfig(max_concurrent=concurrency),
    "cache_config": CacheConfig(write_cache=False),
    "display_config": DisplayConfig(print_results=False, show_indicator=False, inspect_after_run=False),
}
metric = ContainsAny(["yes", "yeah"])
'''

DEEPEVAL_ITERATOR = f"""{_DEEPEVAL}

@observe()
async def app(prompt):
    output = await ask(prompt)
    update_current_trace(input=prompt, output=output)


dataset = EvaluationDataset(goldens=[Golden(input=case["input"]) for case in cases])
for golden in dataset.evals_iterator(metrics=[metric], **settings):
    dataset.evaluate(asyncio.create_task(app(golden.input)))
print(f"{{sum(scores):.0f}} passed")
"""

DEEPEVAL_EVALUATE = f"""{_DEEPEVAL}

async def answered():
    room = asyncio.Semaphore(concurrency)

    async def test_case(case):
        async with room:
            return LLMTestCase(input=case["input"], actual_output=await ask(case["input"]))

    return await asyncio.gather(*(test_case(case) for case in cases))


evaluate(asyncio.run(answered()), [metric], **settings)
print(f"{{sum(scores):.0f}} passed")
"""

PRAMANA_AI = """
from pathlib import Path
from pramana import cli

cli._SUITES_DIR = Path.cwd()  # its command knows only the tiers inside its package: ours stands in for its cheap one
cli.cli()
"""
