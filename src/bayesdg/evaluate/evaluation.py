"""What a learner says about every domain: sources and targets, known and unknown classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bayesdg.data import Domain, Images, ImageSet
from bayesdg.data.domains import Rows
from bayesdg.errors import DataError
from bayesdg.evaluate.density import FeatureDensity
from bayesdg.evaluate.predict import Predictions, predict_images
from bayesdg.evaluate.stored import SCORES, PartKey, PredictedPart
from bayesdg.methods.learner import Learner

# Training images per source domain that the feature density is fitted to, evenly spread.
MOST_FITTED = 2000


class Evaluation:
    """Asks one learner, with one number of draws, about one domain after another.

    Args:
        learner: With the weights to judge.
        draws: Weight draws; 0 for the mean weights.
        known_classes: Labels that training has seen; images of others are 'unknown'.
        sources: Whose training images tell what is familiar.
    """

    def __init__(
        self,
        learner: Learner,
        draws: int,
        known_classes: Sequence[int],
        sources: Mapping[str, Domain],
    ) -> None:
        self.learner = learner
        self.draws = draws
        self.known_classes = torch.tensor(known_classes)
        self.density = self._fit_density(sources)

    def domain(self, domain: Domain, role: Literal["source", "target"]) -> Iterator[PredictedPart]:
        """What is said about each of its `judged_parts`."""
        for key, images in judged_parts(domain, role, self.known_classes):
            if key.part == "unknown":
                yield self.unknown(domain.name, images.images, role)
            else:
                yield self._part(key, images.images, images.labels)

    def unknown(
        self, name: str, images: Images, role: Literal["source", "target", "other"] = "other"
    ) -> PredictedPart:
        """Images that are of no class that training has seen."""
        labels = torch.full((images.shape[0],), -1)
        return self._part(PartKey(name, role, "unknown"), images, labels)

    def _part(self, key: PartKey, images: Images, labels: Tensor) -> PredictedPart:
        found = predict_images(self.learner, images, self.draws, keep_features=True)
        assert found.features is not None
        scores = {name: _single(getattr(found, name)) for name in SCORES}
        scores["density"] = _single(self.density.distance(found.features))
        return PredictedPart(
            key, labels.numpy().astype(np.int32), _single(found.log_probabilities), scores
        )

    def _fit_density(self, sources: Mapping[str, Domain]) -> FeatureDensity:
        features, labels = [], []
        for domain in sources.values():
            # Whoever brings the data set anew may have forgotten what was hidden.
            train = domain.train.of_classes(self.known_classes.tolist())
            rows = torch.arange(0, len(train), -(-len(train) // MOST_FITTED))
            # With as many draws as later: masks of dropout change the mean of the features, too.
            found: Predictions = predict_images(
                self.learner, Rows(train.images, rows), self.draws, keep_features=True
            )
            assert found.features is not None
            features.append(found.features)
            labels.append(train.labels[rows].numpy())
        return FeatureDensity.fit(np.concatenate(features), np.concatenate(labels))


def judged_parts(
    domain: Domain, role: Literal["source", "target"], known_classes: Tensor
) -> Iterator[tuple[PartKey, ImageSet]]:
    """The images a run is judged on: those of known classes and, if there are any, the others.

    Of targets the test images; of sources too, where those are held out, and their validation
    images where the protocol tests on everything (PACS).
    """
    part: Literal["test", "val"]
    part = "test" if role == "target" or domain.held_out_test else "val"
    images: ImageSet = getattr(domain, part)
    known = torch.isin(images.labels, known_classes)
    if not known.any():
        raise DataError(f"no {part} image of {domain.name} is of a class that was trained on")
    yield PartKey(domain.name, role, part), _chosen(images, known)
    if not known.all():
        yield PartKey(domain.name, role, "unknown"), _chosen(images, ~known)


def _chosen(images: ImageSet, mask: Tensor) -> ImageSet:
    if mask.all():
        return images
    rows = mask.nonzero().squeeze(1)
    return ImageSet(Rows(images.images, rows), images.labels[rows])


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.astype(np.float32)
