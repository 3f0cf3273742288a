"""What only a GPU can show. Skipped where there is none."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import bayesdg.training.update as update
from bayesdg.bayes import BayesLinear, ScaleMixturePrior
from bayesdg.data import DomainDataset
from bayesdg.data.augment import augment
from bayesdg.episodes import EpisodeSampler
from bayesdg.errors import ResourceError, UsageError
from bayesdg.methods.learner import build_learner
from bayesdg.objectives import categorical_invariance, gaussian_invariance
from bayesdg.presets import preset as make_preset
from bayesdg.records import NoteRecord, StepRecord
from bayesdg.settings import Settings
from bayesdg.stages import AugmentationSettings
from bayesdg.training.readings import Readings
from bayesdg.training.train import train
from bayesdg.training.update import Updater
from stories import run_folder, state_of, train_until
from worlds import TINY

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
    # torch warns that its own debug mode is a prototype, and while it compiles: no fault of ours.
    pytest.mark.filterwarnings("default"),
]
MakeSettings = Callable[..., Settings]


def test_terms_agree_with_the_cpu() -> None:
    generator = torch.Generator().manual_seed(0)
    target, source = torch.randn(3, 40, 7, generator=generator), torch.randn(3, 90, 7)
    y_t, y_i = torch.arange(40) % 7, torch.arange(90) % 7
    for function in (
        lambda t, a, s, b: categorical_invariance(t, a, s, b),
        lambda t, a, s, b: gaussian_invariance(t, t.exp(), a, s, s.exp(), b, 7),
    ):
        here = function(target, y_t, source, y_i)
        there = function(target.cuda(), y_t.cuda(), source.cuda(), y_i.cuda())
        torch.testing.assert_close(there.cpu(), here, rtol=1e-5, atol=1e-6)


def test_quadrature_agrees_with_the_cpu_and_keeps_little_memory() -> None:
    torch.manual_seed(0)
    layer = BayesLinear(2048, 2048)
    here = layer.kl(ScaleMixturePrior(), "quadrature")
    layer.cuda()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kl = layer.kl(ScaleMixturePrior(), "quadrature")
    kept = torch.cuda.memory_allocated() - before
    kl.backward()
    assert abs(kl.item() / here.item() - 1) < 1e-5
    assert kept < 8 * layer.weight_mu.nbytes


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_terms_are_finite_float32_under_autocast(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, dtype: torch.dtype
) -> None:
    learner = build_learner(tiny_settings("j-deep-invariant"), 3, 1).cuda()
    train_sets = {n: d.train for n, d in tiny_dataset.split().sources.items()}
    sampler = EpisodeSampler(train_sets, 8, 2, "episode")
    episode = sampler.draw(torch.Generator().manual_seed(0)).to("cuda")
    with torch.autocast("cuda", dtype=dtype):
        terms = learner.terms(episode, torch.Generator("cuda").manual_seed(0))
    for value in terms.values.values():
        assert value.dtype == torch.float32
        assert torch.isfinite(value)


@pytest.mark.parametrize("storage", ["device", "memory", "disk"])
def test_training_and_prediction_run_there(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, storage: str
) -> None:
    changes = {"training.steps": 60, "training.learning_rate": 3e-3, "data.storage": storage}
    run = train(tiny_dataset, tiny_settings("bil", changes))
    assert next(run.learner.parameters()).is_cuda
    results = run.evaluate(tiny_dataset)
    assert min(r.metrics["accuracy"] for r in results if r.role == "source") > 0.9
    images = tiny_dataset.domains["far"].test.images
    there = run.predict(images, draws=0).probabilities
    run.learner.cpu()
    np.testing.assert_allclose(run.predict(images, draws=0).probabilities, there, atol=1e-3)


@pytest.mark.parametrize("method", ["bil", "ensemble"])
def test_a_run_that_was_done_before_is_tested_there(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, tmp_path: Path, method: str
) -> None:
    train(tiny_dataset, tiny_settings(method, {"model.members": 2}), out=tmp_path)
    looking = {"model.members": 2, "training.evaluate_target": "end"}
    run = train(tiny_dataset, tiny_settings(method, looking), out=tmp_path)
    assert run.results
    assert next(run.learner.parameters()).is_cuda


def test_augmentation_agrees_with_the_cpu() -> None:
    from bayesdg.data.augment import Changes, apply, draw

    images = torch.randint(256, (9, 3, 64, 64), dtype=torch.uint8)
    changes = draw(9, 64, AugmentationSettings(grey=0.3), torch.Generator().manual_seed(0))
    there = Changes(**{name: value.cuda() for name, value in vars(changes).items()})
    torch.testing.assert_close(
        apply(images.cuda(), there).cpu(), apply(images, changes), atol=1e-4, rtol=0
    )
    own = torch.Generator("cuda").manual_seed(0)
    assert augment(images.cuda(), AugmentationSettings(), own).is_cuda


def test_turned_images_are_the_same_whatever_the_storage(tiny_settings: MakeSettings) -> None:
    from bayesdg.data.domains import ImageSet
    from bayesdg.data.placing import placed
    from bayesdg.data.rotated import Turned
    from bayesdg.stages import DataSettings

    upright = torch.randint(256, (20, 1, 28, 28), dtype=torch.uint8)
    sets = {"30": ImageSet(Turned(upright, 30, 64), torch.arange(20))}
    found = [
        placed(sets, torch.device("cuda"), DataSettings(storage=storage))["30"].images
        for storage in ("device", "memory", "disk")
    ]
    index = torch.arange(20)
    assert all(torch.equal(found[0][index], other[index]) for other in found[1:])


@pytest.mark.parametrize("values", [{}, {"training.precision": "bf16"}, {"engine.compile": True}])
def test_a_killed_run_goes_on_with_the_same_bits_when_deterministic(
    tiny_dataset: DomainDataset,
    tiny_settings: MakeSettings,
    tmp_path: Path,
    values: dict[str, object],
) -> None:
    settings = tiny_settings(
        "bil",
        {
            "training.steps": 8,
            "training.checkpoint_every": 1,
            "training.average": 0.5,
            "model.style_mixing": 0.5,
            "data.augmentation": "photo",
            "engine.deterministic": True,
            **values,
        },
    )
    folder = train_until(tiny_dataset, settings, tmp_path / "a", 5)
    train(tiny_dataset, settings, out=tmp_path / "a")
    train(tiny_dataset, settings, out=tmp_path / "b")
    assert state_of(folder) == state_of(run_folder(tmp_path / "b"))


def test_steps_that_are_no_numbers_are_skipped_there_too(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    tiny_dataset.domains["near"].train.images[0] = torch.nan  # type: ignore[index]
    run = train(tiny_dataset, tiny_settings("bil", {"training.steps": 30}))
    assert sum(isinstance(record, NoteRecord) for record in run.records) > 2
    assert all(torch.isfinite(value).all() for value in run.learner.state_dict().values())


@pytest.mark.parametrize("storage", ["device", "memory"])
@pytest.mark.parametrize(
    ("preset", "method"),
    [("default", "bil"), ("default", "erm"), ("paper", "i"), ("released", "j-deep-invariant")],
)
def test_nobody_waits_for_the_device_between_readings(
    tiny_dataset: DomainDataset,
    monkeypatch: pytest.MonkeyPatch,
    preset: str,
    method: str,
    storage: str,
) -> None:
    """From step 12 on anything that would wait is an error, but for every tenth step's reading."""
    values = {
        "training.steps": 40,
        "training.evaluate_every": 40,
        "training.average": 0.9,
        "training.clip_norm": 1.0,
        "model.style_mixing": 0.5,
        "data.augmentation": "photo",
        "data.storage": storage,
    }
    begin, read, strict = Updater.begin, Readings.read, []

    def begin_strictly(updater: Updater, step: int) -> float:
        torch.cuda.set_sync_debug_mode("error" if step > 12 else "default")
        strict.append(torch.cuda.get_sync_debug_mode())
        return begin(updater, step)

    def read_freely(readings: Readings, leave: bool = False) -> object:
        torch.cuda.set_sync_debug_mode("default")
        return read(readings, leave)

    monkeypatch.setattr(Updater, "begin", begin_strictly)
    monkeypatch.setattr(Readings, "read", read_freely)
    try:
        train(tiny_dataset, make_preset(preset, method).replace({**TINY, **values}))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert strict.count(2) == 28


def test_a_device_that_decides_alone_does_what_the_host_would(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss over 200 steps, to 1%: a GPU adds in another order each time."""
    curves = []
    for forced in (True, False):
        monkeypatch.setattr(update, "can_run_ahead", lambda parameters, forced=forced: forced)
        run = train(tiny_dataset, tiny_settings("bil", {"training.steps": 200}))
        curves.append([r.loss for r in run.records if isinstance(r, StepRecord)])
    assert curves[0] == pytest.approx(curves[1], rel=0.01)


def test_a_device_that_is_not_there_is_told(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    with pytest.raises(UsageError, match=r"no device cuda:99; allowed: cuda:0"):
        train(tiny_dataset, tiny_settings("bil", {"engine.device": "cuda:99"}))


def test_too_little_memory_names_the_settings(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """The real error of the device: more draws than it can hold."""
    values = {"model.draws": 1000, "episode.batch_size": 4096, "episode.per_class": 1000}
    limit = 2 * 2**30 / torch.cuda.mem_get_info()[1]
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(limit)
    try:
        with pytest.raises(ResourceError, match=r"out of memory .*episode.batch_size \(now 4096\)"):
            train(tiny_dataset, tiny_settings("bil", values))
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
