"""Models that are written to: one file a wire format, and functions, commands and the embedded model beside them."""
