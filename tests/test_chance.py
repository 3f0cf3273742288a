import torch

from bayesdg.chance import stream


def test_streams_of_different_purposes_steps_and_seeds_are_different() -> None:
    keys = [(s, p, t) for s in (0, 1) for p in ("episode", "weights") for t in (1, 2)]
    drawn = {tuple(torch.randn(4, generator=stream(*key)).tolist()) for key in keys}
    assert len(drawn) == len(keys)


def test_a_stream_always_begins_at_its_beginning() -> None:
    first, second = stream(3, "episode", 5), stream(3, "episode", 5)
    torch.randn(7, generator=stream(3, "episode", 4))
    assert torch.equal(torch.randn(4, generator=first), torch.randn(4, generator=second))
