"""From ratings to recommendations over four silos, and for somebody whom none of them has met.

python examples/quickstart.py
"""

import tacit

ratings = tacit.load("demo", users=300)
train, test = tacit.split(ratings, test=0.1, seed=7)
silos = tacit.partition(train, into=4, by="user")
print(ratings, silos, sep="\n")

for model in (tacit.Local(seed=7), tacit.Central(seed=7), tacit.SGDMF(seed=7)):
    model.fit(silos)
    error = tacit.evaluate(model, test, ranking=False).metrics["mse"]
    crossed = model.transcript_.meter.bytes_up
    print(f"{model.method:8} test mse {error:.3f}   {crossed:>10,} bytes up   {model.guarantee_}")

print("u42, at her silo:", [item for item, _rating in model.recommend("u42", n=5)])
print("somebody new:    ", [item for item, _rating in model.model_.recommend({1: 5, 2: 4, 7: 1}, n=5)])
