"""Contract suites that every method, engine and partition inherits, and worlds whose answers are known.

`class TestMine(MethodContract)` brings everything that a method must do.
"""
