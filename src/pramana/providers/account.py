"""How one provider account is reached: its address, its key and all that goes with every request, as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pramana.providers.redaction import without_secrets

CONNECT_S = 30.0


@dataclass(frozen=True, slots=True)
class Account:
    """How one provider account is reached."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    timeout_s: float | None = 120.0
    """For one whole request, its streamed answer included; None: whoever asks keeps the time."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Sent with every request; they win over the provider's own."""
    variable: str | None = None
    """The environment variable the key is read from, for messages; None: the vendor's usual one."""
    proxy: str | None = field(default=None, repr=False)
    """The URL of the proxy that every request goes through; None: straight to the base URL."""
    ours: bool = True
    """Whether the base URL is the vendor's or this machine's own choice; False: somebody else named it."""
    allow_private: bool = True
    """Whether what somebody else named may be at a private address."""
    elsewhere: str | None = field(default=None, repr=False)
    """The key for servers that a part of an agent names by itself; never the account's own."""

    @property
    def guarded(self) -> bool:
        """Whether only the public Internet may be connected to."""
        return not (self.ours or self.allow_private)

    @property
    def connect_s(self) -> float:
        """How long a connection may take to stand."""
        return CONNECT_S if self.timeout_s is None else min(CONNECT_S, self.timeout_s)

    def __repr__(self) -> str:
        return f"Account({without_secrets(self.base_url)!r}, {'with a key' if self.key else 'without a key'})"
