"""Sphinx configuration: MyST pages, the Furo theme, and a claims page made from claims.toml at every build."""

import tomllib
from pathlib import Path

HERE = Path(__file__).parent

project = "Pramana"
author = "the Pramana contributors"
copyright = "2026, the Pramana contributors"  # noqa: A001 - Sphinx reads this name
extensions = ["myst_parser"]
html_theme = "furo"
html_title = "Pramana"
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
exclude_patterns = ["_build", "examples"]
nitpicky = True


def claims_page() -> str:
    """Return the claims as a page: what is promised, and what proves it."""
    claims = tomllib.loads((HERE / "claims.toml").read_text(encoding="utf-8"))["claim"]
    lines = [
        "# Claims",
        "",
        "Every promise and bar, and what proves it. A named test that is missing, skipped or failed",
    ]
    lines += ["fails `make test`; a command's last result stands in [proofs](proofs.md).", ""]
    for section in dict.fromkeys(claim["section"] for claim in claims):
        lines += [f"## {section}", ""]
        for claim in (each for each in claims if each["section"] == section):
            lines += [f"- {claim['claim']}"]
            lines += [f"  - `{test.removeprefix('tests/')}`" for test in claim.get("tests", [])]
            if "command" in claim:
                result = f"**{claim['value']}** ({claim['date']}, commit {claim['commit']})"
                lines += [f"  - `{claim['command']}`: {result}"]
        lines.append("")
    return "\n".join(lines)


(HERE / "claims.md").write_text(claims_page(), encoding="utf-8")
