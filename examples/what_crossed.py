"""What leaves a party, step by step, in the three settings.

python examples/what_crossed.py
"""

from collections import defaultdict

import tacit
from tacit.methods import find

train, _test = tacit.split(tacit.load("demo", users=200), test=0.1, seed=7)

for by in ("user", "item", "device"):
    model = tacit.SGDMF(factors=8, rounds=10, seed=7).fit(tacit.partition(train, by=by, into=2))
    setting = model.parties_.setting
    steps = find("sgdmf").sides[setting].party.steps
    messages, sizes = defaultdict(int), defaultdict(int)
    for entry in model.transcript_.entries:
        if entry.direction == "up":
            messages[entry.step] += entry.copies
            sizes[entry.step] += entry.bytes
    print(f"{setting}: {model.parties_.description} {model.guarantee_}")
    for name, size in sizes.items():
        step = steps[name]
        print(f"  {name:10} {step.kind:8} {messages[name]:4} answers {size:>9,} bytes   {step.what}")
    print(f"  digest {model.transcript_.digest}")
