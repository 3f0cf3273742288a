import pytest

from bayesdg.data import load_dataset
from bayesdg.errors import UsageError
from bayesdg.methods import get_method
from bayesdg.names import choose
from bayesdg.presets import preset


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: get_method("bli"),
            "unknown method 'bli'; did you mean 'bil'? allowed: erm, bil, a, b,",
        ),
        (
            lambda: preset("papr"),
            "unknown preset 'papr'; did you mean 'paper'? allowed: default, paper, released",
        ),
        (
            lambda: load_dataset("rotated-digit"),
            "unknown data set 'rotated-digit'; did you mean 'rotated-digits'? allowed: rotated-dig",
        ),
        (
            lambda: load_dataset("rotated-digits").split(["09"]),
            "unknown domain '09' in rotated-digits; did you mean '0'? allowed: 0, 15, 30, 45,",
        ),
        (
            lambda: preset().replace({"model.drawz": 3}),
            "unknown setting 'model.drawz'; did you mean 'model.draws'? allowed: backbone,",
        ),
    ],
)
def test_a_typo_is_answered_with_the_nearest_and_the_allowed(call, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UsageError) as caught:
        call()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_case_is_no_obstacle_to_a_hint() -> None:
    with pytest.raises(UsageError, match="did you mean 'bil'"):
        get_method("BIL")


def test_nothing_near_gives_no_hint() -> None:
    with pytest.raises(UsageError) as caught:
        choose("thing", "xyzzy", {"one": 1})
    assert str(caught.value) == "unknown thing 'xyzzy'; allowed: one"
