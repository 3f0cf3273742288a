"""What can be set at each stage of a run, with its range: one small frozen model per stage.

Imports no torch.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

Weight = Annotated[float, Field(ge=0)]
Names = Annotated[
    tuple[str, ...], BeforeValidator(lambda v: v.split(",") if isinstance(v, str) and v else v)
]


def _device(name: str) -> str:
    if re.fullmatch(r"auto|cpu|mps|cuda(:\d+)?", name, re.ASCII):
        return name
    raise ValueError("should be auto, cpu, mps, cuda, or cuda:1 and so on")


class Stage(BaseModel):
    """Frozen, no unknown keys, no NaN."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class DataSettings(Stage):
    """What is read, and how pixels get to the device."""

    image_size: int | None = Field(
        None, ge=8, le=4096, description="side in pixels; 16 digits, 28 MNIST, 224 folders"
    )
    resize: Literal["squash", "crop"] = Field(
        "squash", description="both sides to the size, or the shorter one and the middle"
    )
    split: Literal["auto", "official", "seeded"] = Field(
        "auto", description="published lists where there are any, or 90/10 by split_seed"
    )
    split_seed: int = Field(0, ge=0, description="of seeded splits and of random subsets")
    split_file: Path | None = Field(None, description="CSV with path, domain, class, split")
    exclude: Names = Field(
        (), description="domains left out altogether, neither source nor target; comma separated"
    )
    unknown_classes: Names = Field(
        (), description="classes that training never sees, to be detected as unknown"
    )
    bad_images: Literal["error", "skip"] = Field(
        "error", description="stop with a list, or go on without them and record it"
    )
    subset: int | None = Field(
        None, ge=20, description="training images of a rotated set; 2,000 MNIST, 10,000 Fashion"
    )
    channels: Literal[1, 3] | None = Field(
        None, description="of a rotated set; 1, or 3 equal ones for colour networks"
    )
    interpolation: Literal["nearest", "bilinear", "bicubic"] = Field(
        "bilinear", description="of rotations"
    )
    augmentation: Literal["auto", "none", "photo"] = Field(
        "auto", description="of training images; auto: photo for pictures, none for digits"
    )
    storage: Literal["auto", "device", "memory", "disk"] = Field(
        "auto", description="where training pixels wait; auto: as near as they fit"
    )
    memory_limit_gb: float | None = Field(
        None, gt=0, description="most that auto may hold; half of what is free by default"
    )
    cache: bool = Field(True, description="keep decoded pixels on disk for the next run")
    prefetch: int = Field(2, ge=0, le=64, description="steps prepared ahead, from memory or disk")
    workers: int = Field(2, ge=0, le=256, description="threads that prepare them")

    @model_validator(mode="after")
    def _disk_needs_a_cache(self) -> DataSettings:
        if self.storage == "disk" and not self.cache:
            raise ValueError("storage is disk, which needs cache = true")
        return self


class AugmentationSettings(Stage):
    """The random changes of 'photo' augmentation; defaults are those of the released code."""

    crop_low: float = Field(0.8, gt=0, le=2, description="least share of the area in a crop")
    crop_high: float = Field(
        1.2, gt=0, le=2, description="largest; beyond 1 the whole image is more likely"
    )
    crop_ratio: float = Field(4 / 3, ge=1, le=4, description="width : height, at most, both ways")
    flip: float = Field(0.5, ge=0, le=1, description="probability of a mirror image")
    jitter: float = Field(0.4, ge=0, le=1, description="of brightness, contrast and saturation")
    grey: float = Field(0.0, ge=0, le=1, description="probability of a grey image")


class ModelSettings(Stage):
    """The network: backbone, last layers, draws."""

    backbone: str = Field("resnet18", description="a timm name, or small-cnn")
    pretrained: bool = Field(True, description="start from timm's weights (ignored by small-cnn)")
    weights: Path | None = Field(None, description="weights file instead of timm's hub")
    batch_norm: Literal["joint", "grouped", "by-domain", "frozen"] = Field(
        "grouped",
        description="statistics of all images together, of target and source images apart, of "
        "each domain apart, or as they were pretrained",
    )
    equal_depth: bool = Field(
        True, description="keep a point layer for phi where the method's phi is not special"
    )
    draws: int = Field(10, ge=1, le=1000, description="weight draws per Bayesian layer")
    combine: Literal["product", "paired"] = Field(
        "paired", description="every draw of one layer with every other's, or one joint draw"
    )
    dropout: float = Field(
        0.2, gt=0, lt=1, description="rate of the method dropout, before phi and before psi"
    )
    members: int = Field(5, ge=2, le=100, description="networks of the method ensemble")
    rho: float = Field(
        -2.5,
        ge=-20,
        le=5,
        description="where the rho of Bayesian weights begins, within a half; sigma is "
        "softplus(rho)",
    )
    pi: float = Field(0.5, gt=0, lt=1, description="share of the narrow Gaussian in the prior")
    std1: float = Field(0.1, gt=0, description="the narrow Gaussian of the prior")
    std2: float = Field(1.5, gt=0, description="the wide Gaussian of the prior")
    kl: Literal["quadrature", "monte-carlo"] = Field(
        "quadrature",
        description="weight KL without noise, or on the draws that went forward",
    )
    style_mixing: float = Field(
        0.0, ge=0, le=1, description="probability of mixing styles of early features; 0 is off"
    )
    style_alpha: float = Field(0.1, gt=0, le=100, description="of the Beta(a, a) that mixes them")
    style_layers: Names = Field(
        (), description="after which layers, comma separated; the first two stages by default"
    )

    @model_validator(mode="after")
    def _narrow_is_narrower(self) -> ModelSettings:
        if self.std1 < self.std2:
            return self
        raise ValueError(f"std1 is {self.std1} and std2 is {self.std2}, std1 must be smaller")


class ObjectiveSettings(Stage):
    """Which form each term has, and how much it weighs."""

    likelihood: Literal["elbo", "marginal"] = Field(
        "elbo", description="mean of logs (eq. 11) or log of the mean over draws"
    )
    classifier_invariance: Literal["exact", "released"] = Field(
        "exact", description="eq. 7, or the released code's normalised Bernoulli form"
    )
    feature_scale: Literal["sum", "mean"] = Field(
        "mean", description="eq. 9 summed over feature dimensions, or their mean"
    )
    feature_twin: Literal["squared", "euclidean"] = Field(
        "squared", description="distance between features that are not Bayesian"
    )
    lambda_psi: Weight = Field(1.0, description="weight of classifier invariance")
    lambda_phi: Weight = Field(1.0, description="weight of feature invariance, phi' included")
    kl_unit: Literal["one", "per-image"] = Field(
        "per-image", description="KL weights as they are, or divided by the training images"
    )
    kl_psi: Weight = Field(0.1, description="weight of KL[q(psi) || p(psi)]")
    kl_phi: Weight = Field(0.001, description="weight of KL[q(phi) || p(phi)], phi' included")

    def weights(self, num_images: int) -> dict[str, float]:
        """A weight for every term there can be, by the term's name."""
        unit = 1.0 if self.kl_unit == "one" else 1.0 / num_images
        return {
            "nll": 1.0,
            "inv_psi": self.lambda_psi,
            "inv_phi": self.lambda_phi,
            "inv_phi_prime": self.lambda_phi,
            "kl_psi": self.kl_psi * unit,
            "kl_phi": self.kl_phi * unit,
            "kl_phi_prime": self.kl_phi * unit,
        }


class EpisodeSettings(Stage):
    """What one step sees."""

    batch_size: int = Field(128, ge=2, description="target images per step (B)")
    per_class: int = Field(16, ge=1, description="images per class and source domain (N)")
    without_invariance: Literal["pooled", "single-domain"] = Field(
        "pooled", description="the batches of methods that compare no domains"
    )
    single_source: bool = Field(
        False, description="with one source domain: go on without the invariance terms"
    )


class TrainingSettings(Stage):
    """The optimiser, and when to look."""

    steps: int = Field(10_000, ge=1)
    learning_rate: float = Field(1e-4, gt=0)
    weight_decay: Weight = Field(0.0, description="L2, as Adam takes it")
    decay_bayesian: bool = Field(False, description="also on mu and rho, which have a prior")
    schedule: Literal["constant", "step", "cosine"] = Field(
        "constant", description="step: a tenth from 60% of the steps on; cosine: down to zero"
    )
    clip_norm: float | None = Field(
        None, gt=0, description="longest gradient; longer ones are shortened to it"
    )
    average: float = Field(
        0.0, ge=0, lt=1, description="decay of a moving average of the weights; 0 is off"
    )
    average_from: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="instead: the mean over every step from this share of training on",
    )
    precision: Literal["32", "bf16"] = Field(
        "32", description="of the network; KL and invariance are always in 32 bits"
    )
    evaluate_every: int = Field(250, ge=1, description="steps between source validations")
    checkpoint_every: int | None = Field(
        None, ge=1, description="steps between checkpoints; at every validation by default"
    )
    evaluate_target: Literal["never", "end", "along"] = Field(
        "never", description="look at the target: after training, or beside every validation"
    )

    @model_validator(mode="after")
    def _one_average(self) -> TrainingSettings:
        if self.average and self.average_from is not None:
            raise ValueError(
                "average and average_from are both set; an average is one or the other"
            )
        return self

    @property
    def is_averaged(self) -> bool:
        """Whether an average of the weights is judged and kept, instead of the weights."""
        return self.average > 0 or self.average_from is not None


class EngineSettings(Stage):
    """What the run is computed on and kept in; no part of what is computed."""

    device: Annotated[str, AfterValidator(_device)] = Field(
        "auto", description="cpu, cuda, cuda:1, mps; auto takes the best there is"
    )
    processes: int = Field(1, ge=1, le=1024, description="that share each episode")
    compile: bool = Field(False, description="compile the backbone (torch.compile)")
    deterministic: bool = Field(False, description="same bits on a GPU, too")
    checkpoints: int = Field(2, ge=1, description="how many are kept beside the best")
    tensorboard: bool = Field(False, description="write what is recorded for TensorBoard, too")


class PredictionSettings(Stage):
    """How a trained network answers."""

    draws: int = Field(50, ge=0, le=10_000, description="weight draws; 0 is the mean weights")
