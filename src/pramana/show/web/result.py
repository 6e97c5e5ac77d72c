"""One result: what was asked, what came back, how it was judged, and how it sounds."""
