import io
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bayesdg import config
from bayesdg.config import assignments, difference, read_config
from bayesdg.errors import UsageError
from bayesdg.presets import preset
from bayesdg.settings import Settings, settings_from

# --- files that are read ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("a.yaml", "training: {learning_rate: 1e-4}", {"training.learning_rate": 1e-4}),
        ("a.yml", "training:\n  steps: 5\nseed: 3\n", {"training.steps": 5, "seed": 3}),
        ("a.yaml", "training.steps: 5", {"training.steps": 5}),
        ("a.yaml", "training.steps: 5\ntraining: {steps: 5}", {"training.steps": 5}),
        ("a.yaml", "x: {a: no, b: on, c: yes}", {"x.a": "no", "x.b": "on", "x.c": "yes"}),
        ("a.yaml", "x: {a: true, b: ~, c: null}", {"x.a": True, "x.b": None, "x.c": None}),
        ("a.yaml", "data: {augmentation: none}", {"data.augmentation": "none"}),
        ("a.yaml", "data: {channels: '3'}", {"data.channels": 3}),
        ("a.yaml", "training: {precision: 32}", {"training.precision": "32"}),
        ("a.yaml", "x: [a, b]\ny: 010", {"x": ["a", "b"], "y": 10}),
        ("a.yaml", "# nothing\n", {}),
        ("a.yaml", "", {}),
        ("a.yaml", "%YAML 1.2\n---\nseed: 1\n...\n", {"seed": 1}),
        ("a.yaml", "training: {}\nseed: 1", {"seed": 1}),
        ("a.YAML", "\ufeffseed: 1\r\nmethod: erm\r\n", {"seed": 1, "method": "erm"}),
        ("a.toml", "seed = 1\n[training]\nsteps = 5", {"seed": 1, "training.steps": 5}),
        ("a.toml", "training.learning_rate = 1e-4", {"training.learning_rate": 1e-4}),
        ("a.toml", '"training.steps" = 5\n[training]\n', {"training.steps": 5}),
        ("a.toml", "\ufeffseed = 1", {"seed": 1}),
        ("a.toml", "", {}),
        ("a.json", '{"data": {"split_file": null}}', {"data.split_file": None}),
        ("a.json", '\ufeff{"training.steps": 5}', {"training.steps": 5}),
    ],
)  # fmt: skip
def test_a_file_becomes_dotted_names(
    tmp_path: Path, name: str, text: str, values: dict[str, Any]
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    read = read_config(tmp_path / name)
    assert read == values
    assert {key: type(value) for key, value in read.items()} == {
        key: type(value) for key, value in values.items()
    }


def test_tilde_is_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "a.toml").write_text("seed = 1")
    assert read_config(Path("~/a.toml")) == {"seed": 1}


def test_settings_of_a_stored_run_are_a_config(tmp_path: Path) -> None:
    stored = preset("paper", "erm", seed=4)
    (tmp_path / "settings.json").write_text(stored.model_dump_json(indent=2))
    assert Settings().replace(read_config(tmp_path / "settings.json")) == stored


def toml(nested: dict[str, Any]) -> str:
    """A table as TOML; null has no form there and is left out."""
    tables = {name: value for name, value in nested.items() if isinstance(value, dict)}
    lines = [
        f"{name} = {json.dumps(value, ensure_ascii=False)}"
        for name, value in nested.items()
        if name not in tables and value is not None
    ]
    return "\n".join([*lines, *(f"[{name}]\n{toml(table)}" for name, table in tables.items())])


def yaml(nested: dict[str, Any]) -> str:
    text = io.StringIO()
    YAML(typ="safe", pure=True).dump(nested, text)
    return text.getvalue()


paths = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]), min_size=1, max_size=20)
varied = st.fixed_dictionaries(
    {},
    optional={
        "seed": st.integers(0, 2**63 - 1),
        "method": st.sampled_from(["erm", "bil", "a"]),
        "data.split_file": st.none()
        | paths
        | st.sampled_from(["null", "~", "no", "1e-4", "C:\\new", "7", "a: b #c", "- x"]),
        "data.channels": st.sampled_from([None, 1, 3]),
        "data.augmentation": st.sampled_from(["auto", "none", "photo"]),
        "data.cache": st.booleans(),
        "augmentation.flip": st.floats(0, 1),
        "model.style_layers": st.lists(st.sampled_from(["layer1", "layer2"])),
        "training.learning_rate": st.floats(1e-300, 1e300),
        "training.steps": st.integers(1, 10**12),
    },
)


@settings(deadline=None, max_examples=40)
@given(varied)
def test_settings_come_back_from_every_kind_of_file(values: dict[str, Any]) -> None:
    wanted = Settings().replace(values)
    nested = wanted.model_dump(mode="json")
    texts = {
        "a.json": wanted.model_dump_json(),
        "a.yaml": yaml(nested),
        "a.toml": toml(nested),
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder) / name
            path.write_text(text, encoding="utf-8")
            assert Settings().replace(read_config(path)) == wanted, text


# --- files that are refused ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("a.yaml", "seed: 1\nmethod: erm\nseed: 2", "line 3: found duplicate key"),
        ("a.yaml", "seed: 1\ntraining:\n\tsteps: 5", "line 3: found character '\\t'"),
        ("a.yaml", "seed: [1", "line 1: "),
        ("a.yaml", "seed: &x 1\nb: *x", "line 1: anchors, aliases"),
        ("a.yaml", "seed: 1\nb: *x", "line 2: anchors, aliases"),
        ("a.yaml", "<<: {seed: 1}\nseed: 2", "line 1: anchors, aliases and merges"),
        ("a.yaml", "seed: 1\n---\nseed: 2", "line 2: but found another document"),
        ("a.yaml", "a: !!python/object/apply:os.system [x]", "line 1: tags"),
        ("a.yaml", "a: !mine 1", "line 1: tags"),
        ("a.yaml", "%YAML 1.1\n---\na: no", "only YAML 1.2"),
        ("a.yaml", "a: \0", "unacceptable character #x0000"),
        ("a.yaml", "a: \x1b[31m", "unacceptable character #x001b"),
        ("a.yaml", "a: 2026-01-02", "'a' is datetime.date(2026, 1, 2); wanted a number"),
        ("a.yaml", "a: 2026-99-99", "month"),
        ("a.yaml", "1: x", "the name 1 is no text"),
        ("a.yaml", "null: x", "the name None is no text"),
        ("a.yaml", "? [a]\n: x", "the name ('a',) is no text"),
        ("a.yaml", "- 1", "holds [1]; wanted names with values"),
        ("a.yaml", "just text", "holds 'just text'; wanted"),
        ("a.yaml", "a: [[1]]", "'a' is [[1]]; wanted"),
        ("a.yaml", "trainin: {}", "'trainin' is {}; wanted"),
        ("a.yaml", "training.steps: 5\ntraining: {steps: 6}", "is there twice, as 5 and 6"),
        ("a.yaml", '"a\\e[31m": 1\n"a\\e[31m": 2', "duplicate key \"a\\x1b[31m\""),
        ("a.toml", "seed = 1\nseed = 2\n", "line 2"),
        ("a.toml", "seed 1", "line 1"),
        ("a.toml", 'a = "C:\\data"', "line 1"),
        ("a.toml", "a = 2026-01-02", "wanted a number"),
        ("a.toml", '"training.steps" = 5\n[training]\nsteps = 6', "is there twice, as 5 and 6"),
        ("a.toml", "\n" + "a." * 1500 + "b = 1", "line 2 has more than 2000 characters"),
        ("a.json", '{"seed": 1,\n"seed": 2}', "'seed' is there twice"),
        ("a.json", '{"data": {"\\u001b": 1, "\\u001b": 2}}', "'\\x1b' is there twice"),
        ("a.json", '{"seed": NaN}', "NaN is not allowed"),
        ("a.json", '{"seed": -Infinity}', "-Infinity is not allowed"),
        ("a.json", '{"seed": 1,}', "line 1 column"),
        ("a.json", "", "line 1 column 1"),
        ("a.json", "null", "holds None"),
        ("a.json", "[]", "holds []"),
        ("a.ini", "seed=1", "settings are read from .toml, .yaml, .yml, .json files"),
        ("settings", "seed=1", "settings are read from .toml, .yaml, .yml, .json files"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_settings_is_one_line(
    tmp_path: Path, name: str, text: str, says: str
) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert_refused(tmp_path / name, says)


@pytest.mark.parametrize("depth", [9, 1000, 30_000, 10**6])
@pytest.mark.parametrize(
    ("suffix", "before", "piece", "after"),
    [
        ("yaml", "", "[", ""),
        ("yaml", "", "{a: ", ""),
        ("yaml", "", "- ", ""),
        ("yaml", "", "? ", ""),
        ("toml", "x = ", "[", ""),
        ("toml", "x = ", "{a=", ""),
        ("toml", "x = ", "[\n", ""),
        ("toml", "", "a.", "b = 1"),
        ("toml", "[", "a.", "b]"),
        ("json", "", "[", ""),
        ("json", "", '{"a":', ""),
    ],
)
def test_nesting_without_end_ends(
    tmp_path: Path, suffix: str, before: str, piece: str, after: str, depth: int
) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_text(before + piece * depth + after)
    began = time.monotonic()
    assert_refused(path, "")
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "text", ["x: [" + "1," * 30_000 + "]", "x: " + "!" * 60_000, "x: " + "9" * 60_000]
)
def test_a_full_file_of_entries_ends(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    began = time.monotonic()
    assert_refused(tmp_path / "a.yaml", "")
    assert time.monotonic() - began < 10


def test_eight_levels_are_read_and_nine_are_not(tmp_path: Path) -> None:
    def write(depth: int) -> Path:
        nested: Any = 1
        for _ in range(depth):
            nested = {"a": nested}
        (tmp_path / "a.json").write_text(json.dumps(nested))
        return tmp_path / "a.json"

    assert read_config(write(8)) == {"a.a.a.a.a.a.a.a": 1}
    assert_refused(write(9), "nested more than 8 deep")


def test_aliases_that_multiply_are_refused_before_they_do(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    (tmp_path / "a.yaml").write_text("\n".join(lines))
    assert_refused(tmp_path / "a.yaml", "line 1: anchors")


def test_places_that_are_no_files_are_refused(tmp_path: Path) -> None:
    assert_refused(tmp_path / "none.toml", "no such file")
    (tmp_path / "folder.toml").mkdir()
    assert_refused(tmp_path / "folder.toml", "wanted a file")
    assert_refused(tmp_path / f"{'x' * 300}.toml", "")
    assert_refused(tmp_path / "a\nb.toml", "no such file")
    assert_refused(Path(), "settings are read from")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.yaml")
    assert_refused(tmp_path / "a.yaml", "wanted a file")


def test_a_file_that_may_not_be_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.toml").write_text("seed = 1")
    monkeypatch.setattr(Path, "open", refuse)
    assert_refused(tmp_path / "a.toml", "Permission denied")


@pytest.mark.parametrize("suffix", ["toml", "yaml", "json"])
def test_other_encodings_and_large_files_are_refused(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.{suffix}"
    path.write_bytes("seed: 1".encode("utf-16"))
    assert_refused(path, "no UTF-8 text")
    path.write_bytes(b"# \xe9")
    assert_refused(path, "no UTF-8 text")
    path.write_bytes(b"#" * (config.MOST_BYTES + 1))
    assert_refused(path, "more than 64 KiB")


ODD = "ab:1{}[],.=-?!&*|>'\"\\#%~_e+ \n\t\r\0\x1b\x85\u2028é"


@settings(deadline=None)
@given(st.sampled_from(["toml", "yaml", "json"]), st.text(st.sampled_from(ODD), max_size=30))
def test_any_text_is_read_or_refused_in_one_line(suffix: str, text: str) -> None:
    message = ""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"a.{suffix}"
        path.write_bytes(text.encode())
        try:
            read_config(path)
        except UsageError as error:
            message = str(error)
    assert message.isprintable()


def assert_refused(path: Path, says: str) -> None:
    """One short line that names the file and has nothing a terminal would obey."""
    with pytest.raises(UsageError) as caught:
        read_config(path)
    message = str(caught.value)
    assert says in message
    assert message.isprintable()
    assert message.startswith(str(path).replace("\n", "\\n") + ": ")
    assert len(message) < len(str(path)) + 420
    assert caught.value.exit_code == 2


# --- settings that are refused ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "nearest"),
    [
        ("a.yaml", "training: {stepps: 5}", "did you mean 'training.steps'?"),
        ("a.yaml", "trainin: {steps: 5}", "did you mean 'training'?"),
        ("a.toml", "[model]\ndrawz = 5", "did you mean 'model.draws'?"),
        ("a.json", '{"Seed": 1}', "did you mean 'seed'?"),
        ("a.yaml", "method: bli", "did you mean 'bil'?"),
        ("a.yaml", "seed: {a: 1}", "unknown setting 'seed.a'"),
    ],
)
def test_a_misspelt_name_is_answered_with_the_nearest(
    tmp_path: Path, name: str, text: str, nearest: str
) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError) as caught:
        Settings().replace(read_config(tmp_path / name))
    assert nearest in str(caught.value)
    assert caught.value.exit_code == 2


OUT_OF_RANGE = [
    ("training.learning_rate", "nan"),
    ("training.learning_rate", "-1"),
    ("training.learning_rate", "inf"),
    ("episode.batch_size", "0"),
    ("episode.batch_size", "-1"),
    ("model.draws", "0"),
    ("model.pi", "2"),
    ("seed", str(2**64)),
    ("seed", "-1"),
    ("training.steps", "1.5"),
    ("training.steps", "many"),
    ("training.steps", "none"),
    ("training.steps", ""),
    ("data.cache", "maybe"),
    ("data.channels", "2"),
    ("data.split", "officiel"),
    ("training", "5"),
]


@pytest.mark.parametrize(("name", "text"), OUT_OF_RANGE)
def test_values_out_of_range_are_refused_by_name(tmp_path: Path, name: str, text: str) -> None:
    refused = rf"^setting {name}: [^\n]*$"
    with pytest.raises(UsageError, match=refused):
        Settings().replace(assignments([f"{name}={text}"]))
    (tmp_path / "a.json").write_text(json.dumps({name: text}))
    with pytest.raises(UsageError, match=refused):
        Settings().replace(read_config(tmp_path / "a.json"))


@pytest.mark.parametrize(("suffix", "text"), [("yaml", ".nan"), ("yaml", ".inf"), ("toml", "nan")])
def test_values_that_are_no_numbers_are_refused_as_such(
    tmp_path: Path, suffix: str, text: str
) -> None:
    """NaN is not equal to itself, and yet no second value."""
    equals = ": " if suffix == "yaml" else " = "
    (tmp_path / f"a.{suffix}").write_text(f"training.learning_rate{equals}{text}\n")
    with pytest.raises(UsageError, match=r"^setting training\.learning_rate: .* finite number"):
        Settings().replace(read_config(tmp_path / f"a.{suffix}"))


# --- assignments -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("training.learning_rate=1e-4", 1e-4),
        ("training.learning_rate=1", 1.0),
        ("training.steps=5", 5),
        (" training.steps = 5 ", 5),
        ("seed=9223372036854775807", 2**63 - 1),
        ("data.cache=false", False),
        ("data.cache=True", True),
        ("data.cache=0", False),
        ("data.image_size=64", 64),
        ("data.image_size=none", None),
        ("data.memory_limit_gb=NULL", None),
        ("data.memory_limit_gb=1.5", 1.5),
        ("data.channels=3", 3),
        ("data.channels=None", None),
        ("data.augmentation=none", "none"),
        ("data.split_file=7", Path("7")),
        ("data.split_file=a=b c.csv", Path("a=b c.csv")),
        ("data.split_file=C:\\new\\table.csv", Path("C:\\new\\table.csv")),
        ("model.weights=null", None),
        ("model.backbone=resnet50", "resnet50"),
        ("method=erm", "erm"),
    ],
)
def test_assignments_land_with_the_type_of_the_setting(text: str, value: object) -> None:
    (name,) = values = assignments([text])
    found: Any = Settings().replace(values)
    for part in name.split("."):
        found = getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_no_assignments_and_equal_ones_are_fine() -> None:
    assert assignments([]) == {}
    assert assignments(["seed=1", "seed=1"]) == {"seed": "1"}


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["x"], "--set takes NAME=VALUE, such as training.steps=500; got 'x'"),
        ([""], "got ''"),
        (["=5"], "got '=5'"),
        ([" = "], "got ' = '"),
        (["a\x1b[31m\n"], "got 'a\\x1b[31m\\n'"),
        (["seed=1", "method=erm", "seed=2"], "--set gives 'seed' twice, as '1' and '2'"),
    ],
)
def test_wrong_assignments_are_one_line(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError) as caught:
        assignments(texts)
    assert says in str(caught.value)
    assert str(caught.value).isprintable()
    assert caught.value.exit_code == 2


# --- difference ------------------------------------------------------------------------------


def test_equal_settings_have_no_difference() -> None:
    stored = json.loads(Settings().model_dump_json())
    assert difference(stored, Settings().model_dump(mode="json")) == []


def test_each_difference_is_a_line() -> None:
    values = {
        "training.steps": 500,
        "data.cache": False,
        "data.channels": 3,
        "data.split_file": "a\nb.csv",
        "method": "erm",
        "model.style_layers": ["layer1", "layer2"],
    }
    stored, wanted = (s.model_dump(mode="json") for s in (Settings(), Settings().replace(values)))
    assert sorted(difference(stored, wanted)) == [
        "data.cache: true -> false",
        "data.channels: none -> 3",
        "data.split_file: none -> a\\nb.csv",
        "method: bil -> erm",
        "model.style_layers: (empty) -> layer1,layer2",
        "training.steps: 10000 -> 500",
    ]


def test_names_of_one_side_alone_are_differences() -> None:
    stored = {"a": {"b": 1, "c": None}, "d": 2}
    assert difference(stored, {"a": {"b": 1}, "e": {}, "d": {"f": 0}}) == [
        "a.c: none -> (absent)",
        "d: 2 -> (absent)",
        "e: (absent) -> {}",
        "d.f: (absent) -> 0",
    ]


def test_what_difference_writes_can_be_set() -> None:
    """Its right sides, handed to --set, make the one from the other."""
    wanted = preset("paper", "a", seed=3).replace({"model.style_layers": ["layer1"]})
    lines = difference(Settings().model_dump(mode="json"), wanted.model_dump(mode="json"))
    texts = [f"{name}={line.split(' -> ')[1]}" for line in lines for name in [line.split(":")[0]]]
    assert Settings().replace(assignments(texts)) == wanted


def test_what_is_stored_can_be_compared_with_itself_read_again() -> None:
    stored = preset("released").model_dump(mode="json")
    assert difference(stored, settings_from(stored).model_dump(mode="json")) == []


def test_nothing_heavy_is_imported() -> None:
    check = (
        "import sys, bayesdg.config; sys.exit(bool({'torch', 'ruamel.yaml'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", check]).returncode == 0
