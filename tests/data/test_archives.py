"""Archives that one should not trust (bad-input scenario 63)."""

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from bayesdg.data import archives as module
from bayesdg.data.archives import unpack
from bayesdg.errors import DataError
from pictures import make_tree

LAYOUT = {"art": {"cat": 2}, "photo": {"cat": 2}}


def tar_of(path: Path, *members: tarfile.TarInfo, content: bytes = b"x") -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member in members:
            member.size = len(content) if member.isreg() else 0
            file.addfile(member, io.BytesIO(content) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def zip_of(path: Path, name: str, content: bytes = b"x", mode: int = 0o644) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        info = zipfile.ZipInfo(name)
        info.external_attr = mode << 16
        file.writestr(info, content, zipfile.ZIP_DEFLATED)
    return path


@pytest.mark.parametrize("kind", ["zip", "gztar", "xztar"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_honest_archives_are_unpacked(tmp_path: Path, kind: str, wrapped: bool) -> None:
    import shutil

    make_tree(tmp_path / "in" / "PACS", LAYOUT)
    root = tmp_path / "in" if wrapped else tmp_path / "in" / "PACS"
    archive = Path(shutil.make_archive(str(tmp_path / "data"), kind, root))
    unpack(archive, tmp_path / "out" / "PACS")
    assert sorted(p.name for p in (tmp_path / "out" / "PACS").iterdir()) == ["art", "photo"]
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["PACS"]


HOSTILE: dict[str, Callable[[Path], Path]] = {
    "tar leading up": lambda p: tar_of(p / "a.tar.gz", member("../evil")),
    "tar from the root": lambda p: tar_of(p / "a.tar.gz", member("/tmp/evil")),
    "tar link out": lambda p: tar_of(p / "a.tar.gz", member("l", tarfile.SYMTYPE, "/etc/passwd")),
    "tar hard link": lambda p: tar_of(p / "a.tar.gz", member("l", tarfile.LNKTYPE, "/etc/passwd")),
    "tar device": lambda p: tar_of(p / "a.tar.gz", member("d", tarfile.CHRTYPE)),
    "tar pipe": lambda p: tar_of(p / "a.tar.gz", member("d", tarfile.FIFOTYPE)),
    "zip leading up": lambda p: zip_of(p / "a.zip", "../evil"),
    "zip from the root": lambda p: zip_of(p / "a.zip", "/tmp/evil"),
    "zip with drive": lambda p: zip_of(p / "a.zip", "C:\\evil"),
    "zip backslashes": lambda p: zip_of(p / "a.zip", "..\\evil"),
    "zip link": lambda p: zip_of(p / "a.zip", "l", b"/etc/passwd", mode=0o120777),
    "zip bomb": lambda p: zip_of(p / "a.zip", "zeros", b"\0" * 50_000_000),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_leave_nothing(tmp_path: Path, name: str) -> None:
    archive = HOSTILE[name](tmp_path)
    with pytest.raises(DataError, match=r"refused|unsafe") as caught:
        unpack(archive, tmp_path / "out" / "PACS")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "out").iterdir()) == []
    assert not list(tmp_path.rglob("evil"))


def test_too_many_members_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_MEMBERS", 2)
    archive = tar_of(tmp_path / "a.tar.gz", *(member(str(i)) for i in range(3)))
    with pytest.raises(DataError, match="3 files, more than 2"):
        unpack(archive, tmp_path / "out")


@pytest.mark.parametrize("cut", [0, 10, 100, -30])
@pytest.mark.parametrize("kind", ["zip", "gztar"])
def test_damaged_archives_are_named(tmp_path: Path, kind: str, cut: int) -> None:
    import shutil

    make_tree(tmp_path / "in", LAYOUT)
    archive = Path(shutil.make_archive(str(tmp_path / "data"), kind, tmp_path / "in"))
    archive.write_bytes(archive.read_bytes()[:cut])
    with pytest.raises(DataError, match=r"damaged|no whole zip or tar"):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["zip", "gztar", "xztar"])
def test_flipped_bytes_are_told(tmp_path: Path, kind: str) -> None:
    import shutil

    make_tree(tmp_path / "in", LAYOUT)
    archive = Path(shutil.make_archive(str(tmp_path / "data"), kind, tmp_path / "in"))
    content = bytearray(archive.read_bytes())
    for place in range(60, len(content) - 60, 37):
        content[place] ^= 0x5A
    archive.write_bytes(content)
    with pytest.raises(DataError):
        unpack(archive, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="is there already"):
        unpack(zip_of(tmp_path / "a.zip", "x"), tmp_path / "out")
