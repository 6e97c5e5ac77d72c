"""The models under test: a request goes out in a vendor's wire format, a reply comes back as `model` types.

`text` holds text models, `voice` holds voice agents; shared code is here. Each wire format is one file that only
translates, over one HTTP seam (`http.py`) and one WebSocket seam (`voice/socket.py`). Never retries, limits or caches:
the engine does.
"""
