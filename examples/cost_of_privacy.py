"""What a guarantee costs: private factors and the floor below them, over the same silos, at three values of ε.

python examples/cost_of_privacy.py
"""

import tacit

ratings = tacit.load("demo", users=2000, items=200)
train, test = tacit.split(ratings, test=0.1, seed=7)
silos = tacit.partition(train, into=2, by="user")


def error(model):
    return tacit.evaluate(model.fit(silos), test, ranking=False).metrics["mse"]


print(f"without privacy: factors {error(tacit.SGDMF(factors=8)):.3f}, biases {error(tacit.Bias()):.3f}")
for epsilon in (1, 4, 16):
    privacy = tacit.DP(epsilon=epsilon, delta=1e-6, unit="rating")
    # Without fine-tuning, so that it shows what was learned together, not what each silo knows by itself.
    factors = error(tacit.SGDMF(factors=8, rounds=30, fine_tuning=0, privacy=privacy))
    print(f"ε = {epsilon} per rating: factors {factors:.3f}, biases {error(tacit.Bias(privacy=privacy)):.3f}")
print("Test mse, lower is better; the noise is SIMULATED from the seed.")
