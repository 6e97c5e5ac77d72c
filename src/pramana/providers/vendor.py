"""What every provider that is reached over HTTP has: one account, opened from a target, and connections to close."""

from typing import ClassVar, Self

from pramana.model import Target
from pramana.providers.account import Account
from pramana.providers.http import Http


class Vendor:
    """An account at one vendor."""

    vendor: ClassVar[str]
    base_url: ClassVar[str]
    """Where its account is, if nobody says otherwise."""

    def __init__(self, account: Account) -> None:
        self._http = Http(self.vendor, account)

    @classmethod
    def open(cls, target: Target, account: Account | None) -> Self:  # noqa: ARG003 - every factory is called alike
        """Return the provider for the target."""
        return cls(account or Account(cls.base_url))

    async def close(self) -> None:
        """Close the connections; a call has one of its own."""
        await self._http.close()
