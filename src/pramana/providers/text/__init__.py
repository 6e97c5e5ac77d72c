"""Text models: one file per wire format, plus functions, commands and the embedded model."""
