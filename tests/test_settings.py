import json
from pathlib import Path

import pytest

from bayesdg.cli.train import chosen_settings
from bayesdg.errors import UsageError
from bayesdg.methods import METHODS
from bayesdg.presets import PRESETS, preset, small_images
from bayesdg.settings import Settings, settings_from


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_fits_every_method_and_survives_json(name: str, method: str) -> None:
    settings = preset(name, method, seed=3)
    assert (settings.preset, settings.method, settings.seed) == (name, method, 3)
    assert settings_from(json.loads(settings.model_dump_json())) == settings


def test_paper_is_as_printed() -> None:
    """Section 4.1, appendix F and eqs. 11 and 12."""
    s = preset("paper")
    assert (s.training.learning_rate, s.training.steps) == (1e-4, 10_000)
    assert (s.episode.batch_size, s.episode.per_class) == (128, 16)
    assert (s.objective.lambda_phi, s.objective.lambda_psi) == (0.1, 100)
    assert (s.model.pi, s.model.std1, s.model.std2) == (0.5, 0.1, 1.5)
    assert (s.model.draws, s.model.combine) == (10, "product")
    assert s.objective.weights(1000)["kl_psi"] == s.objective.weights(1000)["kl_phi"] == 1
    assert (s.objective.likelihood, s.objective.feature_scale) == ("elbo", "sum")


def test_released_is_as_the_code_does_it() -> None:
    s = preset("released")
    assert s.objective.likelihood == "marginal"
    assert (s.objective.classifier_invariance, s.objective.lambda_psi) == ("released", 100)
    assert (s.objective.feature_scale, s.objective.lambda_phi) == ("mean", 1)
    assert s.objective.weights(7000)["kl_psi"] == 1e-4
    assert s.objective.weights(7000)["kl_phi"] == 1e-6
    assert (s.model.batch_norm, s.episode.per_class) == ("grouped", 32)
    assert (s.training.weight_decay, s.training.decay_bayesian) == (5e-4, True)
    assert s.training.schedule == "step"
    assert s.prediction.draws == 0


def test_per_image_weights_divide_by_the_training_images() -> None:
    weights = preset("default").objective.weights(num_images=2000)
    assert weights["kl_psi"] == pytest.approx(0.1 / 2000)
    assert weights["kl_phi"] == pytest.approx(0.001 / 2000)


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("training.learning_rate", float("nan"), "finite"),
        ("training.learning_rate", -1, "greater than 0"),
        ("episode.batch_size", 0, "greater than or equal to 2"),
        ("model.draws", 0, "greater than or equal to 1"),
        ("model.pi", 2, "less than 1"),
        ("seed", 2**64, "less than"),
        ("seed", -1, "greater than or equal to 0"),
        ("model.std1", 2.0, "std1 must be smaller"),
        ("model.combine", "sum", "'product' or 'paired'"),
        ("model", 3, "valid dictionary"),
    ],
)
def test_impossible_values_are_refused_with_the_range(key: str, value: object, says: str) -> None:
    with pytest.raises(UsageError, match=says) as caught:
        preset().replace({key: value})
    assert str(caught.value).startswith(f"setting {key.removesuffix('.std1')}: ")
    assert "\n" not in str(caught.value)


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(UsageError, match="unknown setting 'training.stepz'; did you mean"):
        Settings().replace({"training.stepz": 3})
    with pytest.raises(UsageError, match="unknown setting 'seed.x'"):
        Settings().replace({"seed.x": 3})
    with pytest.raises(UsageError, match="stepz"):
        settings_from({"stepz": 3})


def test_unknown_method_in_settings_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown method 'bli'"):
        Settings(method="bli")


@pytest.mark.parametrize("name", PRESETS)
def test_a_written_file_of_any_preset_gives_its_run_again(name: str, tmp_path: Path) -> None:
    for settings in (preset(name, "d", 3), small_images(name, "d", 3)):
        path = tmp_path / "settings.json"
        path.write_text(settings.model_dump_json())
        assert chosen_settings(path, {}, []) == settings
        assert preset(settings.preset, "d", 3) == settings
        assert small_images(settings.preset).preset == small_images(name).preset
