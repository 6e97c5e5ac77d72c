"""Complaints to a shop, a clerk who replies, judges that err, and a person who labels: for the guide to judges.

`python letters.py cases` prints 200 test cases; `python letters.py label FILE` fills in the labels of an exported file.
"""

import csv
import json
import sys
from pathlib import Path


def clerk(prompt: str) -> str:
    """Reply to a complaint: sometimes with an apology, sometimes without."""
    number = int(prompt.rpartition(" ")[2])
    if number % 5 == 0:
        return "That is not our fault."
    if number % 7 == 0:
        return "Sorry, but that is not our fault."
    return "Our apologies! We send you a new one." if number % 11 == 0 else "We are sorry for the trouble."


def hurried_clerk(prompt: str) -> str:
    """Reply as `clerk` does, but forget the apology in a fifth of the letters."""
    return "We send you a new one." if prompt.endswith(("1", "3")) else clerk(prompt)


def judge(prompt: str) -> bool:
    """Look for the word sorry, which is wrong for some replies."""
    return "sorry" in prompt.rpartition("=====[")[0].rpartition("=====[")[2].lower()


def hasty_judge(prompt: str) -> bool:
    """Prefer the answer that the prompt names first, wherever the reply is not clear."""
    reply = prompt.rpartition("=====[")[0].rpartition("=====[")[2]
    if "apologies" in reply or "Sorry, but" in reply:
        return "YES or NO" in prompt
    return "sorry" in reply


def is_apology(reply: str) -> bool:
    """Decide as a person would."""
    return "apologies" in reply or "sorry for" in reply


def print_cases() -> None:
    """Print the test cases."""
    for number in range(200):
        case = {
            "id": f"creative-{number:03}",
            "category": "creative",
            "input": f"My parcel is broken. Order {number}",
            "assertion": {"type": "llm_judge", "judge_prompt": "Does the reply apologise?"},
            "metadata": {"difficulty": "easy", "tokens_est": 10},
        }
        sys.stdout.write(f"{json.dumps(case)}\n")


def label(path: Path) -> None:
    """Fill in the column `label` of an exported file."""
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["label"] = "yes" if is_apology(row["reply"]) else "no"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, [*rows[0]])
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    print_cases() if sys.argv[1] == "cases" else label(Path(sys.argv[2]))
