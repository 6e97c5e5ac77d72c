"""Scenarios brought in from files, folders or the clipboard, with a preview of what would change."""
