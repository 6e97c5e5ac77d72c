"""The library of scenarios: found, looked at, copied, taken away and brought back."""
