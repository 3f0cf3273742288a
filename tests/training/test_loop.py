"""The loop: what it sees, what it keeps, and that it repeats itself."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from bayesdg.data import DomainDataset, ImageSet
from bayesdg.errors import NumericError
from bayesdg.methods import METHODS
from bayesdg.methods.learner import Learner, build_learner
from bayesdg.records import NoteRecord, Record, StartRecord, StepRecord, mean_accuracy
from bayesdg.settings import Settings
from bayesdg.training.judge import validate
from bayesdg.training.state import TrainingState
from bayesdg.training.train import train
from bayesdg.training.update import Updater
from worlds import sealed

MakeSettings = Callable[..., Settings]


def steps_of(records: list[Record]) -> list[StepRecord]:
    return [record for record in records if isinstance(record, StepRecord)]


def fitted(dataset: DomainDataset, settings: Settings) -> tuple[Learner, list[StepRecord]]:
    run = train(dataset, settings)
    return run.learner, steps_of(list(run.records))


def same_bits(a: Learner, b: Learner) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def without_time(records: list[StepRecord]) -> list[StepRecord]:
    timeless = {"seconds": 0.0, "steps_per_second": 0, "images_per_second": 0, "memory_gb": 0}
    return [replace(record, **timeless) for record in records]


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


def test_layers_with_chance_of_their_own_repeat_themselves_and_leave_torchs_generator_alone(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dropout has only the global generator to draw from."""
    import bayesdg.training.train as module

    def with_dropout(*args: object, **values: object) -> Learner:
        learner = build_learner(*args, **values)  # type: ignore[arg-type]
        learner.network.backbone.layers.insert(4, torch.nn.Dropout(0.5))  # type: ignore[union-attr, operator]
        return learner

    monkeypatch.setattr(module, "build_learner", with_dropout)
    torch.manual_seed(1)
    first, _ = fitted(tiny_dataset, tiny_settings("bil"))
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    torch.manual_seed(2)
    second, _ = fitted(tiny_dataset, tiny_settings("bil"))
    assert same_bits(first, second)


@pytest.mark.parametrize("preset", ["paper", "released", "default"])
@pytest.mark.parametrize("method", [m for m, row in METHODS.items() if row.made_of is None])
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
    total = sum(weights[name] * (value or 0) for name, value in records[-1].terms.items())
    assert records[-1].loss == pytest.approx(total, rel=1e-5)
    bayesian = {name for name, layer in row.layers.items() if layer.bayes}
    health = records[-1].health or {}
    assert set(health) == {f"sigma_{n}_{end}" for n in bayesian for end in ("min", "max")}


def test_all_parameters_learn(tiny_dataset: DomainDataset, tiny_settings: MakeSettings) -> None:
    settings = tiny_settings("j-deep-invariant", {"training.steps": 1})
    before = dict(build_learner(settings, 3, 1).named_parameters())
    learner, _ = fitted(tiny_dataset, settings)
    unmoved = [name for name, p in learner.named_parameters() if torch.equal(p, before[name])]
    assert unmoved == []


def test_training_learns(tiny_dataset: DomainDataset, tiny_settings: MakeSettings) -> None:
    changes = {"training.steps": 60, "training.learning_rate": 3e-3, "training.evaluate_every": 20}
    for method in ("erm", "bil"):
        _, records = fitted(tiny_dataset, tiny_settings(method, changes))
        assert (records[-1].val_accuracy or 0) > 0.9
        assert (records[-1].terms["nll"] or 9) < (records[0].terms["nll"] or 0)


def test_the_selected_weights_are_the_best_and_latest_by_source_validation(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tiny_settings("bil", {"training.steps": 8, "training.learning_rate": 1e-2})
    snapshots = {}
    consider = TrainingState.consider

    def spy(state: TrainingState, accuracy: float | None) -> bool:
        weights = {name: value.clone() for name, value in state.learner.state_dict().items()}
        snapshots[state.progress.step] = (weights, accuracy)
        return consider(state, accuracy)

    monkeypatch.setattr(TrainingState, "consider", spy)
    learner, _ = fitted(tiny_dataset, settings)
    assert len(snapshots) == 4
    best = max(snapshots, key=lambda step: (snapshots[step][1], step))
    for name, value in learner.state_dict().items():
        assert torch.equal(value, snapshots[best][0][name])
    val = {name: domain.val for name, domain in tiny_dataset.split().sources.items()}
    found = validate(learner, val, settings.prediction.draws)
    assert mean_accuracy(found) == pytest.approx(snapshots[best][1])


@pytest.mark.parametrize("look", ["never", "end"])
def test_the_target_is_never_opened_while_training(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, look: str
) -> None:
    """The whole run is given a sealed target: it ends, or at its evaluation, not a step before."""
    far = sealed(tiny_dataset.domains["far"])
    dataset = replace(tiny_dataset, domains={**tiny_dataset.domains, "far": far})
    records: list[Record] = []
    settings = tiny_settings("bil", {"training.evaluate_target": look})
    if look == "never":
        assert train(dataset, settings, on_record=records.append).results == []
    else:
        with pytest.raises(AssertionError, match="were opened"):
            train(dataset, settings, on_record=records.append)
    last = steps_of(records)[-1]
    assert last.step == settings.training.steps
    assert last.source_val is not None


def test_watching_the_target_changes_nothing_but_the_record(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    settings = tiny_settings("bil", {"training.steps": 8, "training.learning_rate": 1e-2})
    blind, blind_records = fitted(tiny_dataset, settings)
    watching = settings.replace({"training.evaluate_target": "along"})
    seeing, records = fitted(tiny_dataset, watching)
    assert same_bits(blind, seeing)
    assert [r.best for r in records] == [r.best for r in blind_records]
    looks = [r for r in records if r.source_val is not None]
    assert len(looks) == 4
    assert all(set(r.target_test or {}) == {"far"} == set(r.target_val or {}) for r in looks)
    sources = tiny_dataset.split().sources
    assert all(set(r.source_test or {}) == set(sources) for r in looks)
    assert all(r.source_test is None for r in blind_records)
    far = tiny_dataset.domains["far"]
    wrong = {
        part: ImageSet(images.images, (images.labels + 1) % 3)
        for part, images in {"val": far.val, "test": far.test}.items()
    }
    worse = {"far": replace(far, **wrong)}
    for name, source in sources.items():
        test = ImageSet(source.test.images, (source.test.labels + 1) % 3)
        worse[name] = replace(source, test=test)
    other = replace(tiny_dataset, domains={**tiny_dataset.domains, **worse})
    mistaken, wrong_records = fitted(other, watching)
    assert same_bits(blind, mistaken)
    assert [r.best for r in wrong_records] == [r.best for r in records]
    assert [r.source_val for r in wrong_records] == [r.source_val for r in records]
    assert [r.target_test for r in wrong_records] != [r.target_test for r in records]
    assert [r.target_val for r in wrong_records] != [r.target_val for r in records]
    assert [r.source_test for r in wrong_records] != [r.source_test for r in records]


def test_sources_are_watched_only_by_test_images_that_are_in_no_other_part(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """As on PACS, where a source's test images are all it has, those it is trained on as well."""
    domains = {
        name: replace(domain, held_out_test=False) for name, domain in tiny_dataset.domains.items()
    }
    settings = tiny_settings("erm", {"training.evaluate_target": "along"})
    _, records = fitted(replace(tiny_dataset, domains=domains), settings)
    assert all(r.source_test is None for r in records)
    assert any(r.target_test is not None for r in records)


def test_only_images_of_classes_that_were_trained_on_are_watched(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    settings = tiny_settings("erm", {"training.evaluate_target": "along"})
    hidden = tiny_dataset.hiding(["high"])
    records: list[Record] = []
    run = train(hidden, settings, on_record=records.append)
    (result,) = (r for r in run.results if r.role == "target")
    last = [r for r in steps_of(records) if r.best][-1].target_test
    assert last is not None
    assert last["far"]["images"] == result.num_images == 6
    assert last["far"]["accuracy"] == pytest.approx(result.metrics["accuracy"])


def test_a_target_without_validation_images_is_watched_by_its_test_images(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    far = tiny_dataset.domains["far"]
    none = replace(far, val=ImageSet(far.val.images[:0], far.val.labels[:0]))
    dataset = replace(tiny_dataset, domains={**tiny_dataset.domains, "far": none})
    records: list[Record] = []
    settings = tiny_settings("erm", {"training.evaluate_target": "along"})
    train(dataset, settings, on_record=records.append)
    looks = [r for r in steps_of(records) if r.source_val is not None]
    assert all(r.target_val is None and r.target_test is not None for r in looks)


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


def poison(dataset: DomainDataset, name: str, row: int | slice) -> None:
    dataset.domains[name].train.images[row] = math.nan  # type: ignore[index]


def test_steps_that_are_no_numbers_are_skipped_and_told(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """One NaN picture: some steps meet it, the others train on."""
    poison(tiny_dataset, "near", 0)
    settings = tiny_settings("bil", {"training.steps": 30, "training.learning_rate": 3e-3})
    run = train(tiny_dataset, settings)
    notes = [r for r in run.records if isinstance(r, NoteRecord)]
    assert 3 < len(notes) < 20
    assert all("was skipped: its loss is nan" in note.text for note in notes)
    # The picture is among the images each note names, and no other step met it.
    for note in notes:
        assert 0 in note.details["training_images"]["near"]
    assert steps_of(list(run.records))[-1].skipped == len(notes)
    assert all(torch.isfinite(value).all() for value in run.learner.state_dict().values())
    assert (steps_of(list(run.records))[-1].val_accuracy or 0) > 0.8


def test_ten_of_them_in_a_row_stop_the_run(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    for name in ("near", "mid", "third"):
        poison(tiny_dataset, name, slice(None))
    records: list[Record] = []
    with pytest.raises(NumericError, match=r"10 steps in a row, up to step 10") as caught:
        train(tiny_dataset, tiny_settings("bil", {"training.steps": 50}), on_record=records.append)
    assert caught.value.exit_code == 4
    assert "training.learning_rate" in str(caught.value)
    assert steps_of(records)[-1].step == 10


def test_an_infinite_gradient_of_a_finite_loss_is_skipped_too(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_broken = Updater.is_broken

    def at_second_call(updater: Updater, loss: torch.Tensor) -> torch.Tensor:
        at_second_call.calls += 1  # type: ignore[attr-defined]
        if at_second_call.calls == 2:  # type: ignore[attr-defined]
            updater.parameters[3].grad[0] = math.inf  # type: ignore[index]
        return is_broken(updater, loss)

    at_second_call.calls = 0  # type: ignore[attr-defined]
    monkeypatch.setattr(Updater, "is_broken", at_second_call)
    run = train(tiny_dataset, tiny_settings("bil"))
    notes = [r.text for r in run.records if isinstance(r, NoteRecord)]
    assert len(notes) == 1
    assert notes[0].startswith("step 2 was skipped")
    assert all(torch.isfinite(value).all() for value in run.learner.state_dict().values())


def test_a_validation_that_is_no_number_is_never_the_best(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    poisoned = tiny_dataset.domains["mid"].val.images
    poisoned[0] = math.nan  # type: ignore[index]
    records: list[Record] = []
    with pytest.raises(NumericError, match="no source validation gave a number"):
        train(tiny_dataset, tiny_settings("bil"), on_record=records.append)
    looks = [r for r in steps_of(records) if r.source_val is not None]
    assert not any(record.best for record in looks)
    assert all(math.isnan(r.source_val["mid"]["accuracy"] or 0) for r in looks if r.source_val)
    assert any("gave no number" in r.text for r in records if isinstance(r, NoteRecord))


def test_a_collapse_to_any_class_is_told(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    """A KL that outweighs everything presses the classifier onto its prior."""
    changes = {
        "objective.kl_unit": "one",
        "objective.kl_psi": 1e3,
        "training.learning_rate": 0.02,
        "training.steps": 150,
        "training.evaluate_every": 10,
        "prediction.draws": 200,
    }
    run = train(tiny_dataset, tiny_settings("b", changes))
    notes = [r for r in run.records if isinstance(r, NoteRecord)]
    healthy = train(tiny_dataset, tiny_settings("b", {**changes, "objective.kl_psi": 1e-3}))
    assert not [r for r in healthy.records if isinstance(r, NoteRecord)]
    assert len(notes) == 1
    assert "answer 'any class'" in notes[0].text


def test_records_tell_speed_memory_and_versions(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings
) -> None:
    run = train(tiny_dataset, tiny_settings("bil", {"training.steps": 20}))
    start = next(r for r in run.records if isinstance(r, StartRecord))
    assert start.versions["torch"] == torch.__version__
    assert start.threads == torch.get_num_threads()
    last = steps_of(list(run.records))[-1]
    assert (last.images_per_second or 0) > (last.steps_per_second or 0) > 0
    assert (last.memory_gb or 0) > 0.01
    assert set(last.source_val or {}) == {"near", "mid", "third"}
    assert set((last.source_val or {})["near"]) >= {"accuracy", "nll", "ece"}


@pytest.mark.parametrize(
    "values",
    [{"training.average": 0.9}, {"training.average_from": 0.5}, {"model.style_mixing": 1.0}],
)
def test_averages_and_mixed_styles_change_the_weights_and_repeat_themselves(
    tiny_dataset: DomainDataset, tiny_settings: MakeSettings, values: dict[str, object]
) -> None:
    plain, _ = fitted(tiny_dataset, tiny_settings("bil"))
    first, _ = fitted(tiny_dataset, tiny_settings("bil", values))
    second, _ = fitted(tiny_dataset, tiny_settings("bil", values))
    assert same_bits(first, second)
    assert not same_bits(first, plain)
