"""A learner with a bank of draws that never changes: images in, probabilities and doubt out.

An exported graph that drew weights would answer differently on each call. So T draws, the very
ones that `Run.predict` uses, become constants of the graph; the backbone is in it once.

Axes: S draws, n images, K classes.
"""

from __future__ import annotations

from torch import Tensor, nn

from bayesdg.evaluate.predict import energy_over_draws, moments_over_draws, prediction_generator
from bayesdg.methods.learner import Learner

OUTPUTS = ("probabilities", "entropy", "aleatoric", "epistemic", "variation_ratio", "energy")


class Frozen(nn.Module):
    """(n, C, H, W) float32 pixels in 0..1 -> OUTPUTS, as in `Predictions`, in float32.

    Probabilities are after the temperature, where there is one.
    """

    def __init__(self, learner: Learner, draws: int, temperature: float | None = None) -> None:
        super().__init__()
        self.learner = learner.eval().requires_grad_(False)
        self.bank = learner.draw(draws, prediction_generator("cpu"))
        self.temperature = temperature

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """OUTPUTS, in order."""
        logits = self.learner.answer(images, self.bank).logits.float()
        mean, *uncertainties = moments_over_draws(logits.log_softmax(-1))
        if self.temperature is not None:
            mean = (mean / self.temperature).log_softmax(-1)
        return (mean.exp(), *uncertainties, energy_over_draws(logits))
