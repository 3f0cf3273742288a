import pytest
import torch

from bayesdg.data import ImageSet
from bayesdg.episodes import Batching, EpisodeSampler
from bayesdg.errors import DataError, UsageError
from worlds import image_set


def numbered(labels: list[int], start: int) -> ImageSet:
    """Images whose single pixel is their own number, to see which were drawn."""
    numbers = torch.arange(start, start + len(labels)).float()
    return ImageSet(numbers.view(-1, 1, 1, 1), torch.tensor(labels))


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# Unequal sizes; class 2 is missing from b, class 1 has a single image there.
DOMAINS = {
    "a": numbered([0, 1, 2] * 10, start=0),
    "b": numbered([0, 0, 0, 1], start=100),
    "c": numbered([0, 1, 2] * 100, start=200),
}
HOME = {"a": range(30), "b": range(100, 104), "c": range(200, 500)}


def test_an_episode_is_a_target_batch_and_n_of_each_class_of_the_other_domains() -> None:
    sampler = EpisodeSampler(DOMAINS, batch_size=6, per_class=2, batching="episode")
    generator = seeded()
    for _ in range(50):
        episode = sampler.draw(generator)
        numbers = episode.images.flatten().int()
        assert episode.num_target == 6
        assert all(int(i) in HOME[str(episode.meta_target)] for i in numbers[:6])
        source_numbers = numbers[6:]
        for name, numbers_of_domain in HOME.items():
            own = torch.tensor([int(i) in numbers_of_domain for i in source_numbers])
            drawn = episode.source_labels[own].bincount(minlength=3).tolist()
            expected = [2, 2, 0] if name == "b" else [2, 2, 2]
            assert drawn == ([0, 0, 0] if name == episode.meta_target else expected)


@pytest.mark.parametrize("batching", ["episode", "single-domain", "pooled"])
def test_an_episode_knows_how_many_images_each_domain_has(batching: Batching) -> None:
    generator = seeded()
    for _ in range(10):
        episode = EpisodeSampler(DOMAINS, 6, 2, batching).draw(generator)
        numbers = iter(episode.images.flatten().int().tolist())
        homes = []
        for size in episode.domain_sizes:
            own = [next(numbers) for _ in range(size)]
            homes.append({name for name, home in HOME.items() for i in own if i in home})
        assert all(len(home) == 1 for home in homes)
        assert len(set.union(*homes)) == len(homes)
        assert sum(episode.domain_sizes) == len(episode.labels)


def test_labels_travel_with_their_images() -> None:
    everything = torch.cat([d.images.flatten() for d in DOMAINS.values()])
    labels = torch.cat([d.labels for d in DOMAINS.values()])
    truth = dict(zip(everything.int().tolist(), labels.tolist(), strict=True))
    for batching in ("episode", "single-domain", "pooled"):
        episode = EpisodeSampler(DOMAINS, 6, 2, batching).draw(seeded())
        drawn = episode.images.flatten().int().tolist()
        assert [truth[i] for i in drawn] == episode.labels.tolist()


def test_images_repeat_only_where_there_are_too_few() -> None:
    sampler = EpisodeSampler(DOMAINS, batch_size=6, per_class=2, batching="episode")
    generator = seeded()
    for _ in range(20):
        episode = sampler.draw(generator)
        target = episode.images[:6].flatten().tolist()
        if episode.meta_target == "b":
            assert len(set(target)) <= 4  # six of four images
        else:
            assert len(set(target)) == 6
            # The one image of class 1 in b is drawn twice, the three of class 0 are not.
            of_b = [i for i in episode.images[6:].flatten().tolist() if i in HOME["b"]]
            assert of_b.count(103) == 2
            assert len(set(of_b) - {103}) == 2


def test_every_domain_is_the_meta_target_equally_often() -> None:
    sampler = EpisodeSampler(DOMAINS, 2, 1, "episode")
    generator = seeded()
    names = [sampler.draw(generator).meta_target for _ in range(3000)]
    # Binomial(3000, 1/3) has a standard deviation of 26: five of them.
    assert all(abs(names.count(name) - 1000) < 130 for name in DOMAINS)


def test_pooled_batches_weigh_images_and_not_domains() -> None:
    sampler = EpisodeSampler(DOMAINS, 20, 1, "pooled")
    generator = seeded()
    numbers = torch.cat([sampler.draw(generator).images.flatten() for _ in range(300)])
    share = (numbers >= 200).double().mean()
    assert abs(share - 300 / 334) < 0.02
    assert sampler.draw(generator).meta_target is None


def test_single_domain_batches_come_from_one_domain() -> None:
    episode = EpisodeSampler(DOMAINS, 6, 2, "single-domain").draw(seeded())
    assert len(episode.labels) == 6
    assert all(int(i) in HOME[str(episode.meta_target)] for i in episode.images.flatten())


def test_same_generator_same_episodes() -> None:
    sampler = EpisodeSampler(DOMAINS, 6, 2, "episode")
    first = [sampler.draw(g).images for g in [seeded(5)] for _ in range(3)]
    second = [sampler.draw(g).images for g in [seeded(5)] for _ in range(3)]
    other = [sampler.draw(g).images for g in [seeded(6)] for _ in range(3)]
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    assert not all(
        a.shape == b.shape and torch.equal(a, b) for a, b in zip(first, other, strict=True)
    )


def test_two_source_domains_are_enough_and_one_is_not() -> None:
    two = {"a": DOMAINS["a"], "b": DOMAINS["b"]}
    assert len(EpisodeSampler(two, 4, 2, "episode").draw(seeded()).source_labels) > 0
    with pytest.raises(UsageError, match="needs two source domains, there is only a; use"):
        EpisodeSampler({"a": DOMAINS["a"]}, 4, 2, "episode")


def test_an_empty_domain_is_named() -> None:
    with pytest.raises(DataError, match="no training images in the domain empty"):
        EpisodeSampler({"a": DOMAINS["a"], "empty": image_set(0, 3, 0)}, 4, 2, "episode")


@pytest.mark.parametrize("batching", ["episode", "single-domain", "pooled"])
def test_the_sizes_that_are_told_are_those_that_come(batching: str) -> None:
    """Class 2 is missing from b, so what is drawn depends on whether b is the meta-target."""
    sampler = EpisodeSampler(DOMAINS, 6, per_class=4, batching=batching)  # type: ignore[arg-type]
    generator = seeded()
    met = set()
    for _ in range(40):
        episode = sampler.draw(generator)
        met |= {episode.num_target, len(episode.source_labels)} - {0}
    assert sampler.sizes == met


def test_a_domain_is_asked_for_images_once() -> None:
    """And in the order of the plan: a device is slow at many small orders."""
    asked = []

    class Asked:
        def __init__(self, name: str) -> None:
            self.name, self.held = name, DOMAINS[name].images
            self.shape = self.held.shape

        def __getitem__(self, index: torch.Tensor) -> torch.Tensor:
            asked.append(self.name)
            return self.held[index]

    domains = {name: ImageSet(Asked(name), d.labels) for name, d in DOMAINS.items()}
    sampler = EpisodeSampler(domains, 6, per_class=2, batching="episode")
    plan = sampler.plan(seeded())
    episode = sampler.fetch(plan)
    assert sorted(asked) == ["a", "b", "c"]
    expected = torch.cat([DOMAINS[name].images[rows] for name, rows in plan.picks])
    assert torch.equal(episode.images, expected)
