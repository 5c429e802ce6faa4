"""Stand-ins for models and drafters, shared by the tests."""
