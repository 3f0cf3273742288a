"""From a forward pass to named terms (paper, eq. 11), without knowing which model made it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from bayesdg.episodes import Episode
from bayesdg.models import Features, Output
from bayesdg.objectives.invariance import (
    categorical_invariance,
    euclidean_distance,
    gaussian_invariance,
    squared_distance,
)
from bayesdg.objectives.likelihood import LIKELIHOODS
from bayesdg.objectives.released import released_categorical_invariance
from bayesdg.objectives.terms import Terms
from bayesdg.ranks import ALONE, Ranks
from bayesdg.stages import ObjectiveSettings

CLASSIFIER_INVARIANCE = {
    "exact": categorical_invariance,
    "released": released_categorical_invariance,
}


@dataclass(frozen=True)
class Objective:
    """The terms of a method.

    Attributes:
        invariant_layers: Names of the layers that are compared across domains.
        settings: The form of each term.
        ranks: The processes that share each episode; the average of their terms is the term.
    """

    invariant_layers: tuple[str, ...]
    settings: ObjectiveSettings
    ranks: Ranks = ALONE

    def __call__(self, output: Output, episode: Episode) -> Terms:
        """nll on the target images, inv_LAYER between both sides, kl_LAYER of the weights."""
        split = episode.num_target
        likelihood = LIKELIHOODS[self.settings.likelihood]
        values = {"nll": likelihood(output.logits[:, :split], episode.target_labels)}
        for layer in self.invariant_layers:
            if layer == "psi":
                values["inv_psi"] = self._classifier(output.logits, episode)
            else:
                num_classes = output.logits.shape[-1]
                values[f"inv_{layer}"] = self._features(
                    output.features[layer], episode, num_classes
                )
        values |= {f"kl_{layer}": kl for layer, kl in output.weight_kl.items()}
        return Terms(values)

    def _classifier(self, logits: Tensor, episode: Episode) -> Tensor:
        split = episode.num_target
        divergence = CLASSIFIER_INVARIANCE[self.settings.classifier_invariance]
        return divergence(
            logits[:, :split],
            episode.target_labels,
            logits[:, split:],
            episode.source_labels,
            self.ranks,
        )

    def _features(self, features: Features, episode: Episode, num_classes: int) -> Tensor:
        split = episode.num_target
        ranks = self.ranks
        target, source = features.mean[..., :split, :], features.mean[..., split:, :]
        labels, source_labels = episode.target_labels, episode.source_labels
        scale = 1.0 if self.settings.feature_scale == "sum" else 1.0 / target.shape[-1]
        if features.variance is not None:
            target_var = features.variance[..., :split, :]
            source_var = features.variance[..., split:, :]
            return scale * gaussian_invariance(
                target, target_var, labels, source, source_var, source_labels, num_classes, ranks
            )
        if self.settings.feature_twin == "squared":
            return scale * squared_distance(
                target, labels, source, source_labels, num_classes, ranks
            )
        # A length, unlike a sum over dimensions, is not divided by their number.
        return euclidean_distance(target, labels, source, source_labels, ranks)
