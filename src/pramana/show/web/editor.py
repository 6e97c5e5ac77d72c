"""One scenario as YAML, with what is wrong marked on its line as one types."""
