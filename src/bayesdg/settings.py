"""Everything that can be set: the settings of one run, whole.

Whatever was used is written beside the results as JSON, so a run can be repeated from its own
record. Imports no torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError

from bayesdg.errors import UsageError
from bayesdg.methods.rows import Method, get_method
from bayesdg.names import unknown
from bayesdg.stages import (
    AugmentationSettings,
    DataSettings,
    EngineSettings,
    EpisodeSettings,
    ModelSettings,
    ObjectiveSettings,
    PredictionSettings,
    Stage,
    TrainingSettings,
)


class Settings(Stage):
    """One run, whole."""

    method: Annotated[str, AfterValidator(lambda name: get_method(name) and name)] = "bil"
    preset: str = "default"
    seed: int = Field(0, ge=0, lt=2**63)
    data: DataSettings = DataSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    model: ModelSettings = ModelSettings()
    objective: ObjectiveSettings = ObjectiveSettings()
    episode: EpisodeSettings = EpisodeSettings()
    training: TrainingSettings = TrainingSettings()
    prediction: PredictionSettings = PredictionSettings()
    engine: EngineSettings = EngineSettings()

    @property
    def row(self) -> Method:
        """The method as a value."""
        return get_method(self.method)

    def replace(self, values: Mapping[str, Any]) -> Settings:
        """A copy with other values, by dotted name.

        >>> Settings().replace({"training.steps": 5}).training.steps
        5
        >>> Settings().replace({"training.step": 5})
        Traceback (most recent call last):
        bayesdg.errors.UsageError: unknown setting 'training.step'; did you mean 'training.steps'?\
 allowed: steps, learning_rate, weight_decay, decay_bayesian, schedule,\
 clip_norm, average, average_from, precision, evaluate_every, checkpoint_every, evaluate_target
        """
        data = self.model_dump()
        for dotted, value in values.items():
            place, path = data, dotted.split(".")
            for depth, key in enumerate(path):
                if not isinstance(place, dict) or key not in place:
                    raise UsageError(_unknown_setting(path[: depth + 1], place))
                if depth == len(path) - 1:
                    place[key] = value
                else:
                    place = place[key]
        return settings_from(data)


def settings_from(data: Mapping[str, Any]) -> Settings:
    """Checked settings from plain values, such as a settings.json; one line if they are wrong."""
    try:
        return Settings.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = ".".join(str(part) for part in first["loc"])
        problem = first["msg"].removeprefix("Value error, ")
        raise UsageError(f"setting {name}: {problem}, got {first['input']!r}") from None


def _unknown_setting(path: list[str], place: object) -> str:
    """The message for a key that is not in `place`."""
    allowed = list(place) if isinstance(place, dict) else []
    prefix = "".join(f"{part}." for part in path[:-1])
    message = unknown("setting", path[-1], allowed)
    return message.replace(f"{path[-1]!r}", f"{prefix + path[-1]!r}", 1).replace(
        "did you mean '", f"did you mean '{prefix}", 1
    )
