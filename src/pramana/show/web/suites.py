"""Suites: their versions, hashes and cases."""
