"""Voice agents on this machine that speak the vendors' wire formats: `VoiceLoopback` serves one `Agent` on a port.

For the selftest and for anyone's tests; never reachable from another machine. As a program:
`python -m pramana.loopback deepgram --first-byte 0.4` prints its URL and serves until it is stopped.
"""
