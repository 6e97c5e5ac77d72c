"""What is decided here: providers and their keys, tokens, prices, looks."""
