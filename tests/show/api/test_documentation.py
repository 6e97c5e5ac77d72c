"""The API documentation page: it renders in a real browser, shows every route, and loads nothing from other hosts."""

import re
from pathlib import Path

from ...chromium import dump_dom
from .served import Client


def test_the_page_shows_every_route_in_a_real_browser(client: Client, tmp_path: Path) -> None:
    dom = dump_dom(f"{client.url}/docs", tmp_path / "profile", "--virtual-time-budget=15000")
    shown = set(re.findall(r'data-path="([^"]+)"', dom))
    described = set(client.get("/openapi.json").json["paths"])
    assert len(described) > 30
    assert {path.replace("\u200b", "") for path in shown} == described, dom[:2000]


def test_the_page_loads_nothing_from_other_hosts(client: Client) -> None:
    found = client.get("/docs")
    addresses = re.findall(rb'(?:src|href)="([^"]+)"', found.body)
    assert addresses
    assert all(each.startswith(b"/") for each in addresses)
    assert all(client.get(each.decode()).status == 200 for each in addresses)
    assert "default-src 'none'" in found.headers["content-security-policy"]
