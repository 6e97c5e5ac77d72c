"""How far can a cosine be trusted? Chooses the default threshold of `semantic_similarity`, then measures it.

`tests/score/pairs.jsonl` holds pairs of a reference and an answer, each labelled by hand: does the answer say the same?
A fixed field splits each kind of pair into two halves. The threshold that separates the labels of the *choose* half
best (balanced accuracy, in steps of 0.01; the middle one of equals) becomes the default; its accuracy is measured on
the *report* half, which had no part in choosing it. Kinds that keep the words and change the meaning (negation, word
order, another number or name) are included on purpose: an embedding hardly distinguishes them.
"""

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pramana.embedded import minilm
from pramana.score.similarity import DEFAULT_THRESHOLD, compute_cosine_similarity

PAIRS = Path(__file__).parent.parent / "tests" / "score" / "pairs.jsonl"
STEPS = [step / 100 for step in range(101)]


@dataclass(frozen=True, slots=True)
class Pair:
    """One labelled pair and the similarity of its texts."""

    kind: str
    same: bool
    half: str
    similarity: float

    def is_right(self, threshold: float) -> bool:
        """Return whether the threshold assigns this pair its label."""
        return (self.similarity >= threshold) == self.same


def measure_pairs(path: Path = PAIRS) -> list[Pair]:
    """Read the pairs and embed their texts."""
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    vectors = minilm.load_encoder().encode([line[side] for line in lines for side in ("reference", "answer")]).tolist()
    return [
        Pair(
            line["kind"],
            line["label"] == "same",
            line["half"],
            compute_cosine_similarity(vectors[2 * row], vectors[2 * row + 1]),
        )
        for row, line in enumerate(lines)
    ]


def measure_accuracy(pairs: Iterable[Pair], threshold: float) -> float:
    """Return the share of pairs that the threshold labels correctly."""
    return fmean(pair.is_right(threshold) for pair in pairs)


def balanced_accuracy(pairs: Sequence[Pair], threshold: float) -> float:
    """Return the mean of the accuracies on both labels, so that each label has the same weight."""
    return fmean(measure_accuracy([pair for pair in pairs if pair.same is same], threshold) for same in (True, False))


def choose_threshold(pairs: Sequence[Pair]) -> float:
    """Return the best threshold on the *choose* half."""
    choose = select_half(pairs, "choose")
    scores = [round(balanced_accuracy(choose, step), 9) for step in STEPS]
    best = [step for step, score in zip(STEPS, scores, strict=True) if score == max(scores)]
    return best[len(best) // 2]


def select_half(pairs: Iterable[Pair], name: str) -> list[Pair]:
    """Return the pairs of one half."""
    return [pair for pair in pairs if pair.half == name]


def main() -> int:
    """Print the tables; return 1 if the constant in the scorer differs from the threshold chosen here."""
    pairs = measure_pairs()
    threshold = choose_threshold(pairs)
    report = select_half(pairs, "report")
    print(f"{len(pairs)} pairs; threshold {threshold} chosen on {len(select_half(pairs, 'choose'))} of them.\n")
    print(f"On the other {len(report)}: balanced accuracy {balanced_accuracy(report, threshold):.3f}.\n")
    print("| kind | says the same | pairs | mean similarity | judged rightly |")
    print("| --- | --- | --- | --- | --- |")
    for kind, same in dict.fromkeys((pair.kind, pair.same) for pair in report):
        group = [pair for pair in report if (pair.kind, pair.same) == (kind, same)]
        right = measure_accuracy(group, threshold)
        mean = fmean(pair.similarity for pair in group)
        print(f"| {kind} | {'yes' if same else 'no'} | {len(group)} | {mean:.2f} | {right:.0%} |")
    print("\n| threshold | right when the same | right when different | balanced |")
    print("| --- | --- | --- | --- |")
    for other in sorted({0.4, 0.5, 0.6, 0.7, 0.8, 0.9, threshold}):
        sides = [measure_accuracy([pair for pair in report if pair.same is same], other) for same in (True, False)]
        print(f"| {other} | {sides[0]:.0%} | {sides[1]:.0%} | {balanced_accuracy(report, other):.3f} |")
    if threshold != DEFAULT_THRESHOLD:
        print(f"\nThe scorer's DEFAULT_THRESHOLD is {DEFAULT_THRESHOLD}, but {threshold} is chosen here.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
