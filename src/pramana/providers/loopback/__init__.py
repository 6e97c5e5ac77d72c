"""Servers on this machine that speak the vendors' wire formats: `Loopback` serves one `Wire` on a port of its own.

For selftests, benchmarks and the tests of anyone; never reachable from another machine. As a program:
`python -m pramana.providers.loopback openai --latency 0.05` prints its URL and serves until it is stopped.
"""

from pramana.providers.loopback.server import Answer, Fault, Got, Loopback, Wire

__all__ = ["Answer", "Fault", "Got", "Loopback", "Wire"]
