"""Bench: the same prompts answered in several ways, interleaved, and what can honestly be said about their speed."""
