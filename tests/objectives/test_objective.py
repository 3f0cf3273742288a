"""The objective as a whole, against eq. 11 written out, and its deterministic rows."""

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

from bayesdg.episodes import Episode
from bayesdg.models import Features, Output
from bayesdg.objectives import Objective, Terms
from bayesdg.stages import ObjectiveSettings

B, N, K, D, S = 4, 6, 3, 5, 2


def normal(*shape: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, dtype=torch.float64, generator=generator)


EPISODE = Episode(
    images=torch.empty(B + N, 0),
    labels=torch.tensor([0, 1, 2, 0, 0, 0, 1, 1, 2, 2]),
    num_target=B,
    meta_target="x",
)
OUTPUT = Output(
    features={"phi": Features(normal(B + N, D, seed=0), normal(B + N, D, seed=1).exp())},
    logits=normal(S, B + N, K, seed=2),
    weight_kl={"phi": torch.tensor(7.0), "psi": torch.tensor(5.0)},
)
PRINTED = ObjectiveSettings(likelihood="elbo", feature_scale="sum")


def test_it_is_equation_11() -> None:
    labels, logits, phi = EPISODE.labels, OUTPUT.logits, OUTPUT.features["phi"]
    assert phi.variance is not None
    nll, inv_psi, inv_phi = [], [], []
    for t in range(B):
        nll.append(-Categorical(logits=logits[:, t]).log_prob(labels[t]).mean())
        same = [i for i in range(B, B + N) if labels[i] == labels[t]]
        for terms, divergence in (
            (
                inv_psi,
                lambda i, t=t: kl_divergence(
                    Categorical(logits=logits[:, t]), Categorical(logits=logits[:, i])
                ).mean(),
            ),
            (
                inv_phi,
                lambda i, t=t: kl_divergence(
                    Normal(phi.mean[t], phi.variance[t].sqrt()),
                    Normal(phi.mean[i], phi.variance[i].sqrt()),
                ).sum(),
            ),
        ):
            terms.append(torch.stack([divergence(i) for i in same]).mean())
    terms = Objective(("phi", "psi"), PRINTED)(OUTPUT, EPISODE)
    assert set(terms.values) == {"nll", "inv_phi", "inv_psi", "kl_phi", "kl_psi"}
    torch.testing.assert_close(terms.values["nll"], torch.stack(nll).mean())
    torch.testing.assert_close(terms.values["inv_psi"], torch.stack(inv_psi).mean())
    torch.testing.assert_close(terms.values["inv_phi"], torch.stack(inv_phi).mean())
    weights = {"nll": 1.0, "inv_psi": 100.0, "inv_phi": 0.1, "kl_psi": 1.0, "kl_phi": 1.0}
    expected = (
        torch.stack(nll).mean() + 100 * torch.stack(inv_psi).mean()
        + 0.1 * torch.stack(inv_phi).mean() + 5 + 7
    )  # fmt: skip
    torch.testing.assert_close(terms.total(weights), expected)


def test_mean_scale_divides_the_feature_term_by_its_dimensions() -> None:
    by_sum = Objective(("phi",), PRINTED)(OUTPUT, EPISODE).values["inv_phi"]
    mean = ObjectiveSettings(feature_scale="mean")
    by_mean = Objective(("phi",), mean)(OUTPUT, EPISODE).values["inv_phi"]
    torch.testing.assert_close(by_sum, D * by_mean)


@pytest.mark.parametrize("twin", ["squared", "euclidean"])
def test_a_point_layer_is_compared_by_distance(twin: str) -> None:
    mean = OUTPUT.features["phi"].mean
    output = Output({"phi": Features(mean, None)}, OUTPUT.logits, {})
    settings = PRINTED.model_copy(update={"feature_twin": twin})
    value = Objective(("phi",), settings)(output, EPISODE).values["inv_phi"]
    labels = EPISODE.labels
    per_target = []
    for t in range(B):
        distances = [(mean[t] - mean[i]).norm() for i in range(B, B + N) if labels[i] == labels[t]]
        per_target.append(
            torch.stack([0.5 * d**2 if twin == "squared" else d for d in distances]).mean()
        )
    torch.testing.assert_close(value, torch.stack(per_target).mean())


def test_without_invariance_only_likelihood_and_prior_remain() -> None:
    assert set(Objective((), PRINTED)(OUTPUT, EPISODE).values) == {"nll", "kl_phi", "kl_psi"}


def test_only_target_images_are_classified() -> None:
    """Eq. 11 has the likelihood of y_t alone."""
    moved = Output(OUTPUT.features, OUTPUT.logits.clone(), {})
    moved.logits[:, B:] += normal(S, N, K, seed=9)
    objective = Objective((), PRINTED)
    assert objective(moved, EPISODE).values["nll"] == objective(OUTPUT, EPISODE).values["nll"]


def test_a_term_without_weight_is_an_error() -> None:
    with pytest.raises(KeyError, match="no weight for the terms inv_phi"):
        Terms({"nll": torch.tensor(1.0), "inv_phi": torch.tensor(1.0)}).total({"nll": 1.0})
