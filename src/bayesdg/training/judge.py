"""Selection while training: how good are the weights on validation images of the source domains?

The weights with the best mean accuracy, the latest among equals, are the ones kept. Targets may be
watched if somebody asks; their numbers go into the record and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from bayesdg.data import ImageSet
from bayesdg.errors import NumericError
from bayesdg.evaluate.metrics import METRICS
from bayesdg.evaluate.predict import predict_images
from bayesdg.methods.learner import Learner
from bayesdg.records import StepRecord, mean_accuracy
from bayesdg.training.keeper import Keeper
from bayesdg.training.state import TrainingState

# A learner is mute when it answers 'any class' everywhere; so many looks in a row are told.
MUTE_ENTROPY, MUTE_LOOKS = 0.98, 3


class Judge:
    """Looks at a learner every now and then.

    Attributes:
        val: Validation images of the source domains.
        draws: Weight draws per prediction.
        keeper: Is handed what was found.
        leave: Whether to cut a look short.
        watched: Test images of the targets, for who wants to watch them.
        watched_val: Likewise their validation images.
        watched_sources: Likewise the sources' own test images.
    """

    def __init__(
        self,
        val: Mapping[str, ImageSet],
        draws: int,
        keeper: Keeper,
        leave: Callable[[], bool] = lambda: False,
        watched: Mapping[str, ImageSet] | None = None,
        watched_val: Mapping[str, ImageSet] | None = None,
        watched_sources: Mapping[str, ImageSet] | None = None,
    ) -> None:
        self.val = val
        self.draws = draws
        self.keeper = keeper
        self.leave = leave
        self.watched = watched or {}
        self.watched_val = watched_val or {}
        self.watched_sources = watched_sources or {}
        self._num_classes = max(int(images.labels.max()) + 1 for images in val.values())

    def look(self, state: TrainingState, record: StepRecord) -> None:
        """Judge the weights and complete the record of the step; nothing if it was cut short."""
        progress, learner = state.progress, state.judged
        found, *watched = (
            validate(learner, images, self.draws, self.leave)
            for images in (self.val, self.watched, self.watched_val, self.watched_sources)
        )
        progress.cut_short = found is None or None in watched
        if found is None or None in watched:
            self.keeper.record(record)
            return
        target_test, target_val, source_test = (metrics or None for metrics in watched)
        accuracy = mean_accuracy(found)
        judged = replace(
            record,
            source_val=found,
            best=state.consider(accuracy),
            target_test=target_test,
            target_val=target_val,
            source_test=source_test,
            health=learner.health(),
        )
        self.keeper.record(judged)
        if accuracy is None:
            self.keeper.note(
                record.step, "source validation gave no number: these weights are not kept"
            )
        progress.mute = progress.mute + 1 if self._is_mute(found) else 0
        if progress.mute == MUTE_LOOKS:
            self.keeper.note(
                record.step,
                f"{MUTE_LOOKS} validations in a row answer 'any class': the weight of a KL or of "
                "an invariance term is probably too large, or the learning rate",
            )

    def _is_mute(self, found: Mapping[str, Mapping[str, float]]) -> bool:
        num = self._num_classes
        return all(
            m["entropy"] > MUTE_ENTROPY * math.log(num) and m["accuracy"] < 1.5 / num
            for m in found.values()
        )


def validate(
    learner: Learner,
    domains: Mapping[str, ImageSet],
    draws: int,
    leave: Callable[[], bool] = lambda: False,
) -> dict[str, dict[str, float]] | None:
    """Every metric, the mean entropy and how many images by domain; None if it was asked to leave.

    Predictions that are no numbers give metrics that are none: NaN.
    """
    found: dict[str, dict[str, float]] = {}
    for name, images in domains.items():
        try:
            predictions = predict_images(learner, images.images, draws, leave=leave)
        except NumericError:
            found[name] = {**dict.fromkeys([*METRICS, "entropy"], math.nan), "images": len(images)}
            continue
        if predictions is None:
            return None
        log_p, labels = predictions.log_probabilities, images.labels.numpy()
        found[name] = {metric: f(log_p, labels) for metric, f in METRICS.items()}
        found[name]["entropy"] = float(predictions.entropy.mean())
        found[name]["images"] = len(images)
    return found
