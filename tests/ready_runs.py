"""Run folders as training and evaluation leave them, generated without torch in a moment."""

import io
from pathlib import Path

import numpy as np
from PIL import Image

from bayesdg.evaluate.features import NAME, FeatureSample, sample_rows, write_features
from bayesdg.evaluate.scoring import detections, part_metrics
from bayesdg.evaluate.stored import PartKey, PredictedPart, predictions_path, write_predictions
from bayesdg.presets import preset
from bayesdg.records import DetectionRecord, ResultRecord, StartRecord, StepRecord, write_records
from bayesdg.settings import Settings
from bayesdg.training.about import About, Task, identity, run_name

# What a class may be called, and must be shown as.
ODD_NAMES = ("<script>alert(1)</script>", "[/dog]", "🐘 & elephant", "زرافة", "$x_1$")
SOURCES, TARGETS = ("art_painting", "cartoon", "photo"), ("sketch",)


def ready_run(
    out: Path,
    method: str = "bil",
    seed: int = 0,
    *,
    classes: tuple[str, ...] = ("dog", "elephant", "horse"),
    targets: tuple[str, ...] = TARGETS,
    num_images: int = 40,
    steps: int = 100,
    values: dict[str, object] | None = None,
    evaluated: bool = True,
    with_features: bool = True,
    on_map: int = 30,
) -> Path:
    """A run folder that is done, tested, and has a feature map; predictions are part chance."""
    settings = preset("default", method, seed).replace(
        {"training.steps": steps, "training.evaluate_every": steps // 5, "prediction.draws": 10}
        | (values or {})
    )
    domains = dict.fromkeys((*SOURCES, "sketch"))
    sources = tuple(name for name in domains if name not in targets)
    task = Task(
        dataset="pacs", classes=classes, image_shape=(3, 64, 64), sources=sources, targets=targets,
        known_classes=tuple(range(len(classes))),
    )  # fmt: skip
    folder = out / run_name("pacs", targets, settings)
    folder.mkdir(parents=True)
    about = About(task=task, versions={"bayesdg": "0.1.0"}, identity=identity(settings))
    (folder / "run.json").write_text(about.model_dump_json())
    (folder / "settings.json").write_text(settings.model_dump_json())
    chance = np.random.default_rng([seed, len(method), ord(method[0])])
    records = [_start(), *_steps(settings, sources, steps, chance)]
    (folder / "manifest.json").write_text("{}")
    if evaluated:
        parts = [
            _part(PartKey(name, "target" if name in targets else "source", "test"),
                  len(classes), num_images, chance)
            for name in (*sources, *targets)
        ]  # fmt: skip
        write_predictions(predictions_path(folder, 10), parts)
        common = {
            "dataset": "pacs", "method": method, "preset": "default", "seed": seed,
            "selection": "source-val", "step": steps, "draws": 10,
        }  # fmt: skip
        for part in parts:
            key = part.key
            records.append(
                ResultRecord(
                    **common,
                    domain=key.domain,
                    role=key.role,
                    part="test",
                    num_images=len(part),
                    num_excluded=0,
                    metrics=part_metrics(part),
                )
            )
        for found in detections(parts):
            records.append(DetectionRecord(**common, **vars(found)))
        if with_features:
            write_features(folder / NAME, _sample(parts, on_map, chance))
    write_records(folder / "records.jsonl", records)
    return folder


def half_finished(folder: Path) -> Path:
    """The folder, as it was before its run was done."""
    (folder / "manifest.json").unlink()
    lines = (folder / "records.jsonl").read_text().splitlines(keepends=True)
    (folder / "records.jsonl").write_text("".join(lines[:4]) + lines[4][:30])
    for path in [*folder.glob("predictions/*"), *folder.glob("features.npz")]:
        path.unlink()
    return folder


def _start() -> StartRecord:
    return StartRecord(0, "2026-01-01T00:00:00Z", {"bayesdg": "0.1.0"}, "cpu", 1, 1, "32", False)


def _steps(
    settings: Settings, sources: tuple[str, ...], steps: int, chance: np.random.Generator
) -> list[StepRecord]:
    found = []
    for step in range(steps // 20, steps + 1, steps // 20):
        accuracy = 0.9 - 0.5 * np.exp(-4 * step / steps)
        val = {name: {"accuracy": accuracy + 0.02 * chance.random()} for name in sources}
        look = step % settings.training.evaluate_every == 0
        terms = {"nll": 1 / step, "inv_psi": 0.1, "kl_psi": 1e4 + step}
        found.append(
            StepRecord(
                step,
                float(step),
                terms,
                1.0,
                1e-4,
                1.0,
                source_val=val if look else None,
                best=step == steps,
            )
        )
    return found


def _part(key: PartKey, num_classes: int, num: int, chance: np.random.Generator) -> PredictedPart:
    labels = np.arange(num, dtype=np.int32) % num_classes
    logits = chance.normal(size=(num, num_classes))
    logits[np.arange(num), labels] += 1.0 if key.role == "target" else 3.0
    log_p = (logits - np.log(np.exp(logits).sum(-1, keepdims=True))).astype(np.float32)
    entropy = -(np.exp(log_p) * log_p).sum(-1)
    scores = {"entropy": entropy, "aleatoric": 0.8 * entropy, "epistemic": 0.2 * entropy}
    scores |= {"variation_ratio": entropy, "energy": entropy, "density": entropy}
    return PredictedPart(key, labels, log_p, {n: v.astype(np.float32) for n, v in scores.items()})


def _sample(parts: list[PredictedPart], on_map: int, chance: np.random.Generator) -> FeatureSample:
    rows = [sample_rows(part.key, len(part), on_map) for part in parts]
    labels = np.concatenate([part.labels[r] for part, r in zip(parts, rows, strict=True)])
    which = np.repeat(np.arange(len(parts), dtype=np.int32), list(map(len, rows)))
    features = chance.normal(size=(len(labels), 8)) + 4 * np.eye(8)[labels] + which[:, None]
    pictures = tuple(_picture(number) for number in range(len(labels)))
    return FeatureSample(
        tuple(part.key for part in parts), which, np.concatenate(rows).astype(np.int32), labels,
        features.astype(np.float32), pictures, np.ones(len(labels), bool), tuple(map(len, parts)),
    )  # fmt: skip


def _picture(number: int) -> bytes:
    colours = np.random.default_rng(number).integers(256, size=(4, 4, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(colours).resize((64, 64)).save(buffer, "WEBP")
    return buffer.getvalue()
