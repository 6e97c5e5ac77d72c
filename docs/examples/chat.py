"""An agent that reads the whole conversation: as a function, and as a coroutine function."""

import asyncio


def reply(messages):
    orders = [each["content"] for each in messages if each["role"] == "user" and "order" in each["content"]]
    if not orders:
        return "Which order is it?"
    return f"About your message {orders[0]!r}: it arrives on Friday."


async def areply(messages):
    await asyncio.sleep(0)  # here you would await a client's call
    return reply(messages)
