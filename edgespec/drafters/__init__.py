"""Drafters: whatever proposes tokens, one file for each kind."""
