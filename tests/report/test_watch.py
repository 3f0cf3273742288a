"""The server as a client sees it."""

import http.client
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from bayesdg.errors import UsageError
from bayesdg.report.watch import HOST, server
from ready_runs import half_finished, ready_run


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[ThreadingHTTPServer, Path]]:
    folder = half_finished(ready_run(tmp_path))
    with server([tmp_path], 0) as listening:
        thread = Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield listening, folder
        listening.shutdown()
        thread.join()


def ask(
    listening: ThreadingHTTPServer, path: str = "/", method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection(HOST, listening.server_port, timeout=60)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, headers=named)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def test_the_page_follows_the_records(running: tuple[ThreadingHTTPServer, Path]) -> None:
    listening, folder = running
    answer, first = ask(listening)
    assert answer.status == 200
    assert b"not finished: step 15 of 100" in first
    tag = answer.headers["ETag"]
    assert ask(listening, If_None_Match=tag)[0].status == 304
    with (folder / "records.jsonl").open("r+") as file:
        line = file.read().splitlines()[3]
        file.seek(0, 2)
        file.write("\n")  # the line that was cut, done with
    (folder / "records.jsonl").write_text(
        "\n".join([*(folder / "records.jsonl").read_text().splitlines()[:4],
                   line.replace('"step": 15', '"step": 20')]) + "\n"
    )  # fmt: skip
    answer, second = ask(listening, If_None_Match=tag)
    assert answer.status == 200
    assert b"not finished: step 20 of 100" in second


def test_who_asks_for_another_name_is_refused(
    running: tuple[ThreadingHTTPServer, Path],
) -> None:
    listening, _ = running
    port = listening.server_port
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1", f"127.0.0.1:{port + 1}", ""):
        answer, content = ask(listening, Host=host)
        assert answer.status == 421, host
        assert b"records" not in content
    assert ask(listening, Host=f"localhost:{port}")[0].status == 200


@pytest.mark.parametrize(
    ("path", "method", "status"),
    [
        ("/records.jsonl", "GET", 404),
        ("/../../etc/passwd", "GET", 404),
        ("/", "HEAD", 200),
        ("/", "POST", 501),
        ("/", "DELETE", 501),
    ],
)
def test_there_is_one_page_and_nothing_to_change(
    running: tuple[ThreadingHTTPServer, Path], path: str, method: str, status: int
) -> None:
    assert ask(running[0], path, method)[0].status == status


def test_a_tab_that_is_closed_on_the_way_is_no_error(
    running: tuple[ThreadingHTTPServer, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    listening, _ = running
    ask(listening)  # the page is made
    for request in (b"GET / HTTP/1.1\r\n", f"GET / HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode()):
        client = socket.create_connection((HOST, listening.server_port))
        # The other side gets a reset instead of an end.
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.sendall(request)
        client.close()
    time.sleep(0.3)
    assert ask(listening)[0].status == 200
    assert capfd.readouterr().err == ""


def test_it_listens_on_this_machine_alone(running: tuple[ThreadingHTTPServer, Path]) -> None:
    assert running[0].server_address[0] == "127.0.0.1"


def test_a_port_that_is_taken_is_one_line(running: tuple[ThreadingHTTPServer, Path]) -> None:
    with pytest.raises(UsageError, match=r"cannot be listened to .*--port"):
        server([Path()], running[0].server_port)


def test_it_prints_its_address_and_ends_with_130_on_ctrl_c(tmp_path: Path) -> None:
    ready_run(tmp_path, evaluated=False)
    process = subprocess.Popen(
        [sys.executable, "-m", "bayesdg", "watch", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    address = line.removeprefix("http://").removesuffix("/")
    connection = http.client.HTTPConnection(address, timeout=60)
    connection.request("GET", "/")
    assert connection.getresponse().status == 200
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in err
