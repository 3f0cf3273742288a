"""The rows against the ticks of the paper's Tables 1 and D.1, typed from print."""

from bayesdg.methods import METHODS

# psi Bayesian, psi invariant, phi Bayesian, phi invariant
TICKS = {
    "a": "....", "b": "x...", "c": ".x..", "d": "xx..", "e": "..x.", "f": "...x", "g": "..xx",
    "h": "x.x.", "i": ".x.x", "j": "xxxx", "k": "xxx.", "l": "xx.x", "m": "x.xx", "n": ".xxx",
}  # fmt: skip


def test_rows_have_the_ticks_of_the_paper() -> None:
    for name, ticks in TICKS.items():
        row = METHODS[name]
        ours = (row.psi.bayes, row.psi.invariant, row.phi.bayes, row.phi.invariant)
        assert "".join("x" if tick else "." for tick in ours) == ticks, name
        assert row.phi_prime is None
        assert row.prior == "mixture"


def test_names_stand_for_rows() -> None:
    def layers(name: str) -> object:
        return METHODS[name].layers

    assert layers("erm") == layers("a")
    assert layers("bil") == layers("j")


def test_variants_change_one_thing() -> None:
    j = METHODS["j"]
    standard = METHODS["j-standard-prior"]
    assert (standard.layers, standard.prior) == (j.layers, "standard")
    for name, invariant in (("j-deep", False), ("j-deep-invariant", True)):
        deep = METHODS[name]
        assert deep.phi_prime is not None
        assert (deep.phi_prime.bayes, deep.phi_prime.invariant) == (True, invariant)
        assert list(deep.layers) == ["phi_prime", "phi", "psi"]
        assert (deep.psi, deep.phi) == (j.psi, j.phi)
