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
from bayesdg.evaluate.normalised import Around, as_trained
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
        around: What the learner is asked inside of, domain by domain.
    """

    def __init__(
        self,
        learner: Learner,
        draws: int,
        known_classes: Sequence[int],
        sources: Mapping[str, Domain],
        around: Around = as_trained,
    ) -> None:
        self.learner = learner
        self.draws = draws
        self.around = around
        self.known_classes = torch.tensor(known_classes)
        self.density = self._fit_density(sources)

    def domain(self, domain: Domain, role: Literal["source", "target"]) -> list[PredictedPart]:
        """What is said about each of its `judged_parts`."""
        parts = list(judged_parts(domain, role, self.known_classes))
        # All of them together: which images are of unknown classes only the labels could tell.
        with self.around(domain.name, judged_images(domain, role)[1].images):
            return [
                self._unknown(key, images.images)
                if key.part == "unknown"
                else self._part(key, images.images, images.labels)
                for key, images in parts
            ]

    def unknown(self, name: str, images: Images) -> PredictedPart:
        """Images from elsewhere, which are of no class that training has seen."""
        with self.around(name, images):
            return self._unknown(PartKey(name, "other", "unknown"), images)

    def _unknown(self, key: PartKey, images: Images) -> PredictedPart:
        return self._part(key, images, torch.full((images.shape[0],), -1))

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
            with self.around(domain.name, train.images):
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
    """The `judged_images` of known classes and, if there are any, the others."""
    part, images = judged_images(domain, role)
    known = torch.isin(images.labels, known_classes)
    if not known.any():
        raise DataError(f"no {part} image of {domain.name} is of a class that was trained on")
    yield PartKey(domain.name, role, part), _chosen(images, known)
    if not known.all():
        yield PartKey(domain.name, role, "unknown"), _chosen(images, ~known)


def judged_images(
    domain: Domain, role: Literal["source", "target"]
) -> tuple[Literal["test", "val"], ImageSet]:
    """The images a run is judged on, and what part of the domain they are.

    Of targets the test images; of sources too, where those are held out, and their validation
    images where the protocol tests on everything (PACS).
    """
    if role == "target" or domain.held_out_test:
        return "test", domain.test
    return "val", domain.val


def _chosen(images: ImageSet, mask: Tensor) -> ImageSet:
    if mask.all():
        return images
    rows = mask.nonzero().squeeze(1)
    return ImageSet(Rows(images.images, rows), images.labels[rows])


def _single(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return values.astype(np.float32)
