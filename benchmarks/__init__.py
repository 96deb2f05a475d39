"""How fast and how lean: every number beside a peer, or beside the limit, measured in the same run.

    python -m benchmarks              all of them
    python -m benchmarks sgd message  some of them
    python -m benchmarks --list       their names

Nothing here passes or fails: a target is printed beside its number, and the machine beside both.
"""
