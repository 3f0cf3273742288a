"""Rules that hold for the whole package."""

import ast
import importlib
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import bayesdg

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src").rglob("*.py"))


def test_public_names_exist_and_are_imported_when_used() -> None:
    for name in bayesdg.__all__:
        assert getattr(bayesdg, name) is not None
    done = subprocess.run(
        [sys.executable, "-c", "import sys, bayesdg; sys.exit('torch' in sys.modules)"]
    )
    assert done.returncode == 0


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(bayesdg, "nothing")


def test_nothing_is_unpickled_or_evaluated() -> None:
    forbidden = re.compile(r"weights_only=False|import pickle|yaml\.load\(|\beval\(|joblib")
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        found = [line for line in text.splitlines() if forbidden.search(line.replace(".eval(", ""))]
        assert found == [], path
        for call in re.findall(r"torch\.load\([^)]*\)", text):
            assert "weights_only=True" in call


def test_files_stay_readable() -> None:
    long = {p.name: n for p in SOURCES if (n := len(p.read_text().splitlines())) > 300}
    assert long == {}


def test_constraints_pin_every_dependency() -> None:

    def normal(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    pins = {
        normal(line.split("==")[0])
        for line in (ROOT / "constraints.txt").read_text().splitlines()
        if "==" in line
    }
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [need for extra in project["optional-dependencies"].values() for need in extra]
    wanted = {normal(re.split(r"[\[><=]", need)[0]) for need in project["dependencies"] + extras}
    assert wanted - {"bayesdg"} <= pins


@pytest.mark.parametrize("folder", ["benchmarks", "tests"])
def test_what_scripts_and_tests_import_exists(folder: str) -> None:
    """Inside of functions too: most benchmarks and the slow tests run seldom."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("bayesdg"):
                module = importlib.import_module(str(node.module))
                for name in (alias.name for alias in node.names):
                    there = hasattr(module, name) or find_spec(f"{node.module}.{name}")
                    assert there, f"{path}, line {node.lineno}: no {name} in {node.module}"


def test_a_public_name_is_the_same_on_every_use() -> None:
    """A submodule of the same name would take its place once it is imported."""
    for name in bayesdg.__all__:
        assert getattr(bayesdg, name) is getattr(bayesdg, name)
        assert name == "__version__" or not (ROOT / "src/bayesdg" / name).exists()
        assert not (ROOT / "src/bayesdg" / f"{name}.py").exists()
