"""The loop: what it sees, what it keeps, and that it repeats itself."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from bayesdg.bayes import BayesLinear
from bayesdg.data import DomainDataset, ImageSet
from bayesdg.errors import NumericError
from bayesdg.methods import METHODS
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.records import StepRecord
from bayesdg.settings import Settings, TrainingSettings
from bayesdg.training.loop import fit, make_optimiser, make_schedule, validate
from bayesdg.training.run import train
from worlds import sealed

MakeSettings = Callable[..., Settings]


def fitted(dataset: DomainDataset, settings: Settings) -> tuple[Learner, list[StepRecord]]:
    learner = build_learner(settings, len(dataset.classes), 1)
    return learner, list(fit(learner, dataset.split().sources, settings))


def same_bits(a: Learner, b: Learner) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def without_time(records: list[StepRecord]) -> list[StepRecord]:
    return [replace(record, seconds=0.0) for record in records]


@pytest.mark.parametrize("method", ["erm", "bil", "n", "j-deep"])
def test_same_seed_gives_the_same_bits_twice(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, method: str
) -> None:
    settings = tiny_settings(method)
    torch.manual_seed(1)
    first, first_records = fitted(tiny_dataset, settings)
    torch.manual_seed(2)  # the global generator is nobody's business
    second, second_records = fitted(tiny_dataset, settings)
    assert same_bits(first, second)
    assert without_time(first_records) == without_time(second_records)
    other, _ = fitted(tiny_dataset, settings.replace({"seed": 1}))
    assert not same_bits(first, other)


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
@pytest.mark.parametrize("method", METHODS)
def test_every_row_trains_under_every_preset(
    tiny_dataset: DomainDataset, method: str, preset: str
) -> None:
    from bayesdg.presets import preset as make
    from worlds import TINY

    settings = make(preset, method).replace({**TINY, "training.steps": 2})
    learner, records = fitted(tiny_dataset, settings)
    row = METHODS[method]
    expected = {"nll"}
    expected |= {f"inv_{name}" for name in row.invariant_layers}
    expected |= {f"kl_{name}" for name, layer in row.layers.items() if layer.bayes}
    assert set(records[-1].terms) == expected
    assert all(torch.isfinite(p).all() for p in learner.parameters())
    weights = settings.objective.weights(num_images=3 * 18)
    total = sum(weights[name] * value for name, value in records[-1].terms.items())
    assert records[-1].loss == pytest.approx(total, rel=1e-5)


def test_all_parameters_learn(tiny_dataset: DomainDataset, tiny_settings: MakeSettings) -> None:
    settings = tiny_settings("j-deep-invariant")
    learner = build_learner(settings, 3, 1)
    before = {name: p.detach().clone() for name, p in learner.named_parameters()}
    list(fit(learner, tiny_dataset.split().sources, settings.replace({"training.steps": 1})))
    unmoved = [name for name, p in learner.named_parameters() if torch.equal(p, before[name])]
    assert unmoved == []


def test_training_learns(tiny_dataset: DomainDataset, tiny_settings: MakeSettings) -> None:
    changes = {"training.steps": 60, "training.learning_rate": 3e-3, "training.evaluate_every": 20}
    for method in ("erm", "bil"):
        _, records = fitted(tiny_dataset, tiny_settings(method, changes))
        assert records[-1].source_val is not None
        assert sum(records[-1].source_val.values()) / 3 > 0.9
        assert records[-1].terms["nll"] < records[0].terms["nll"]


def test_the_selected_weights_are_the_best_and_latest_by_source_validation(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    settings = tiny_settings("bil", {"training.steps": 8, "training.learning_rate": 1e-2})
    sources = tiny_dataset.split().sources
    learner = build_learner(settings, 3, 1)
    snapshots, means = {}, {}
    for record in fit(learner, sources, settings):
        if record.source_val is not None:
            snapshots[record.step] = {k: v.clone() for k, v in learner.state_dict().items()}
            means[record.step] = sum(record.source_val.values()) / 3
    assert len(means) == 4
    best = max(means, key=lambda step: (means[step], step))
    for name, value in learner.state_dict().items():
        assert torch.equal(value, snapshots[best][name])
    mean = sum(validate(learner, sources, settings.prediction.draws).values()) / 3
    assert mean == pytest.approx(means[best])


def test_the_target_is_never_opened_while_training(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """The whole run is given a sealed target: it ends at its evaluation, not a step before."""
    far = sealed(tiny_dataset.domains["far"])
    dataset = replace(tiny_dataset, domains={**tiny_dataset.domains, "far": far})
    records: list[StepRecord] = []
    settings = tiny_settings("bil")
    with pytest.raises(AssertionError, match="were opened"):
        train(dataset, settings, on_step=records.append)
    assert records[-1].step == settings.training.steps
    assert records[-1].source_val is not None


def test_the_test_images_of_the_sources_do_not_matter_either(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    domains = {
        name: replace(domain, test=ImageSet(domain.test.images[:0], domain.test.labels[:0]))
        for name, domain in tiny_dataset.split().sources.items()
    } | {"far": tiny_dataset.domains["far"]}
    emptied = replace(tiny_dataset, domains=domains)
    settings = tiny_settings("bil")
    assert same_bits(fitted(tiny_dataset, settings)[0], fitted(emptied, settings)[0])


def test_a_loss_that_is_no_number_stops_the_run(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    for name in ("near", "mid", "third"):
        tiny_dataset.domains[name].train.images[:] = math.nan
    with pytest.raises(NumericError, match="the loss is nan at step 2") as caught:
        fitted(tiny_dataset, tiny_settings("bil"))
    assert caught.value.exit_code == 4


@pytest.mark.parametrize("decay_bayesian", [False, True])
def test_weight_decay_spares_mu_and_rho_unless_told(
    tiny_settings: MakeSettings, decay_bayesian: bool
) -> None:
    learner = build_learner(tiny_settings("bil"), 3, 1)
    settings = TrainingSettings(weight_decay=0.1, decay_bayesian=decay_bayesian)
    optimiser = make_optimiser(learner, settings)
    bayesian = {p for m in learner.modules() if isinstance(m, BayesLinear) for p in m.parameters()}
    decay = {p: group["weight_decay"] for group in optimiser.param_groups for p in group["params"]}
    assert set(decay) == set(learner.parameters())
    for parameter, value in decay.items():
        spared = parameter in bayesian and not decay_bayesian
        assert value == (0.0 if spared else 0.1)


def test_step_schedule_is_a_tenth_from_60_percent_on() -> None:
    settings = TrainingSettings(steps=10, schedule="step", learning_rate=1.0)
    optimiser = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)
    schedule = make_schedule(optimiser, settings)
    rates = []
    for _ in range(10):
        rates.append(schedule.get_last_lr()[0])
        optimiser.step()
        schedule.step()
    assert rates == pytest.approx([1.0] * 6 + [0.1] * 4)
