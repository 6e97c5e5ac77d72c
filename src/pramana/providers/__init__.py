"""Who is asked: a request goes out in the vendor's own wire format, a reply comes back in the words of `model`.

`text` holds models that are written to, `voice` agents that are called; what both share is here. One file a wire
format, which only translates, over one HTTP seam (`http.py`) and one WebSocket seam (`voice/socket.py`). Never a retry,
a limit or a cache: those are the engine's.
"""
