"""Who is asked: a request goes out in the vendor's own wire format, a reply comes back in the words of `model`.

One file a wire format, which only translates, over one HTTP seam (`http.py`). Never a retry, a limit or a cache: those
are the engine's. `loopback` holds one server a wire format, for selftests and for the tests of anyone.
"""
