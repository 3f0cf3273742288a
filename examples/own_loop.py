"""The paper's terms in a training loop of your own, with a network of your own.

Two domains in which class and position agree differently: the invariance term asks the classifier
to say the same about the same class, whichever domain a point is from.
"""

import torch
from torch import nn

import bayesdg as bd

generator = torch.Generator().manual_seed(0)


def points(shift: float, num: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    """Two classes on either side of a line that is shifted from domain to domain."""
    labels = torch.arange(num) % 2
    x = torch.randn(num, 2, generator=generator)
    return x + torch.stack([3.0 * labels, shift + 0.0 * labels], dim=1), labels


target, source, unseen = points(0.0), points(2.0), points(5.0)
features = nn.Sequential(nn.Linear(2, 32), nn.ReLU())
classifier = bd.BayesLinear(32, 2)
prior = bd.ScaleMixturePrior()
optimiser = torch.optim.Adam([*features.parameters(), *classifier.parameters()], lr=0.01)

for _ in range(200):
    draw = classifier.draw(10, generator)  # the same draws for both sides, as eq. 7 wants it
    logits, logits_source = (classifier(features(x), draw) for x, _ in (target, source))
    likelihood = -logits.log_softmax(-1)[:, range(200), target[1]].mean()
    invariance = bd.categorical_invariance(logits, target[1], logits_source, source[1])
    weight_kl = classifier.kl(prior, "quadrature") / 200
    optimiser.zero_grad()
    (likelihood + invariance + weight_kl).backward()
    optimiser.step()

with torch.no_grad():
    probabilities = classifier(features(unseen[0]), classifier.draw(100, generator)).softmax(-1)
correct = probabilities.mean(0).argmax(-1) == unseen[1]
print(f"accuracy in the unseen domain: {correct.double().mean():.3f}")
