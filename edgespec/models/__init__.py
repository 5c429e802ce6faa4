"""Models: which there are, where they come from, and which go together."""
