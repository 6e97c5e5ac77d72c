"""The dialog that asks for confirmation, without a browser: the page that it belongs to may be left meanwhile."""

import asyncio

import pytest
from nicegui import Client, core
from nicegui.page import page

from pramana.show.web.kit import parts


def test_leaving_the_page_answers_an_open_confirmation_with_no(monkeypatch: pytest.MonkeyPatch) -> None:
    async def leave_page_while_asked() -> bool:
        monkeypatch.setattr(core, "loop", asyncio.get_running_loop())
        client = Client(page("/"), request=None)

        async def ask() -> bool:
            with client:
                return await parts.ask_confirmation("Stop this watch?", "Its days are kept.", "Stop watch")

        answer = asyncio.create_task(ask())
        await asyncio.sleep(0)  # until the dialog is open
        client.delete()
        return await asyncio.wait_for(answer, 10)

    assert asyncio.run(leave_page_while_asked()) is False
