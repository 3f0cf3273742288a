"""Recalibration of a run, on the validation images of its sources and on nothing else."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from bayesdg.data import DomainDataset
from bayesdg.errors import DataError
from bayesdg.evaluate.predict import Predictions, predict_images
from bayesdg.evaluate.recalibration import Recalibration, Wanted, fitted
from bayesdg.evaluate.stored import SCORES
from bayesdg.methods.learner import Learner
from bayesdg.training.about import Task
from bayesdg.training.results import chosen_domains
from bayesdg.training.state import to_bytes


def recalibrated(
    learner: Learner, task: Task, dataset: DomainDataset, draws: int, wanted: Wanted
) -> Recalibration:
    """What is wanted, fitted to all validation images of the sources together."""
    sources, _ = chosen_domains(dataset, task)
    known = {name: domain.val.of_classes(task.known_classes) for name, domain in sources.items()}
    used = {name: images for name, images in known.items() if len(images)}
    if not used:
        raise DataError(f"no validation images in {', '.join(sources)}: nothing to fit to")
    parts = [predict_images(learner, images.images, draws) for images in used.values()]
    found = Predictions.joined(parts)
    labels = np.concatenate([images.labels.numpy() for images in used.values()])
    scores = {name: getattr(found, name) for name in SCORES}
    temperature, sets, rejection = fitted(found.log_probabilities, scores, labels, wanted)
    return Recalibration(
        weights=weights_digest(learner),
        draws=draws,
        domains=tuple(used),
        num_images=len(labels),
        temperature=temperature,
        sets=sets,
        rejection=rejection,
    )


def weights_digest(learner: Learner) -> str:
    """sha256 of the weights as they are written."""
    return sha256(to_bytes(learner.state_dict())).hexdigest()
