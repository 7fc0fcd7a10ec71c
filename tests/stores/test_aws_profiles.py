"""Profiles of AWS's files: a store is read by their keys, region and endpoint."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from reader import ConfigError, DatasetError, RecordIO, RecordWriter, ShardCache
from tests.stores.servers import S3Server, own_certificate, s3_server

pytestmark = pytest.mark.slow

OTHERS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_REGION")
OTHERS += ("AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ENDPOINT_URL")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    path = tmp_path_factory.mktemp("records") / "a.rec"
    with RecordWriter(path) as file:
        file.write(b"content")
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        server.make_bucket("bucket")
        server.put("bucket", "a.rec", path.read_bytes())
        server.put("bucket", "a.idx", path.with_suffix(".idx").read_bytes())
        yield server


class Home:
    """A home folder with AWS's two files."""

    def __init__(self, folder: Path, server: S3Server) -> None:
        self.folder, self.server = folder / ".aws", server
        self.folder.mkdir()

    def write(self, config: str = "", credentials: str = "") -> None:
        """Write the files: of ENDPOINT and KEYS stand those of the server."""
        keys = f"aws_access_key_id = {self.server.access_key}\n"
        keys += f"aws_secret_access_key = {self.server.secret_key}\n"
        for name, text in (("config", config), ("credentials", credentials)):
            text = text.replace("ENDPOINT", self.server.endpoint).replace("KEYS", keys)
            (self.folder / name).write_text(text)


@pytest.fixture
def home(tmp_path: Path, server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Home:
    for name in OTHERS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return Home(tmp_path, server)


def read(**store: Any) -> bytes:
    """Return the record that the store has, by a process that was started now."""
    store = {"timeout": 5, **store}
    return RecordIO("s3://bucket/a.rec", store=store, cache=ShardCache())[0]


def test_the_default_profile_is_read(home: Home) -> None:
    home.write("[default]\nregion = us-east-1\nendpoint_url = ENDPOINT\n", "[default]\nKEYS")
    assert read() == b"content"


@pytest.mark.parametrize("is_of_environment", [True, False])
def test_a_profile_is_named_by_the_option_or_the_environment(
    is_of_environment: bool, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write(
        "[default]\nregion = eu-west-1\n[profile of work]\nservices = own\nregion = us-east-1\n"
        "[services own]\ndynamodb =\n  endpoint_url = http://127.0.0.1:9\ns3 =\n"
        "  endpoint_url = ENDPOINT\n",
        "[default]\naws_access_key_id = none\naws_secret_access_key = none\n[of work]\nKEYS",
    )
    if is_of_environment:
        monkeypatch.setenv("AWS_PROFILE", "of work")
        assert read() == b"content"
    else:
        monkeypatch.setenv("AWS_PROFILE", "another")
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "none")
        assert read(profile="of work") == b"content"


def test_files_lie_where_the_environment_says(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("[profile x]\nendpoint_url = ENDPOINT\nregion = us-east-1\n", "[x]\nKEYS")
    for name, variable in (
        ("config", "AWS_CONFIG_FILE"),
        ("credentials", "AWS_SHARED_CREDENTIALS_FILE"),
    ):
        (home.folder / name).rename(tmp_path / name)
        monkeypatch.setenv(variable, str(tmp_path / name))
    assert read(profile="x") == b"content"


def test_keys_of_the_environment_count_before_those_of_its_profile(
    home: Home, server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = "aws_access_key_id = none\naws_secret_access_key = none\n"
    home.write("[profile x]\nendpoint_url = ENDPOINT\nregion = us-east-1\n", f"[x]\n{wrong}")
    monkeypatch.setenv("AWS_PROFILE", "x")
    with pytest.raises((ConfigError, DatasetError), match="is refused by the store"):
        read()
    keys = {"access_key_id": server.access_key, "secret_access_key": server.secret_key}
    assert read(**keys) == b"content"
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", server.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret_key)
    assert read() == b"content"


def test_a_program_gives_credentials_and_is_run_again_when_they_expire(
    home: Home, server: S3Server, tmp_path: Path
) -> None:
    program, runs = tmp_path / "program.py", tmp_path / "runs"
    said = {
        "Version": 1,
        "AccessKeyId": server.access_key,
        "SecretAccessKey": server.secret_key,
        "Expiration": "2001-01-01T00:00:00Z",  # long ago
    }
    program.write_text(f"open({str(runs)!r}, 'a').write('x'); print({json.dumps(said)!r})")
    home.write(
        "[profile x]\nendpoint_url = ENDPOINT\nregion = us-east-1\n"
        f"credential_process = {sys.executable} '{program}'\n"
    )
    assert read(profile="x") == b"content"
    count = len(runs.read_text())
    assert count >= 1
    assert read(profile="x") == b"content"
    assert len(runs.read_text()) > count
    program.write_text('print(\'{"SecretAccessKey": "hidden"}\')')
    with pytest.raises(ConfigError, match="credential_process of the profile 'x' gave no") as error:
        read(profile="x")
    assert "hidden" not in str(error.value)


class TokenService(ThreadingHTTPServer):
    """An STS that gives the server's keys for a token of web identity."""

    daemon_threads = True

    def __init__(self, server: S3Server, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), TokenServiceHandler)
        context, self.certificate = own_certificate(folder)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.s3, self.is_refusing = server, False
        self.asked: list[dict[str, list[str]]] = []

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_port}"


class TokenServiceHandler(BaseHTTPRequestHandler):
    server: TokenService

    def do_POST(self) -> None:
        asked = parse_qs(self.path.partition("?")[2])
        if not asked:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append(asked)
        body = (
            "<AssumeRoleWithWebIdentityResponse><AssumeRoleWithWebIdentityResult><Credentials>"
            f"<AccessKeyId>{self.server.s3.access_key}</AccessKeyId>"
            f"<SecretAccessKey>{self.server.s3.secret_key}</SecretAccessKey>"
            "<SessionToken></SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>"
            "</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>"
        )
        if self.server.is_refusing:
            body = "<ErrorResponse><Error><Code>InvalidIdentityToken</Code></Error></ErrorResponse>"
        self.send_response(403 if self.server.is_refusing else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def tokens(
    server: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[TokenService]:
    with TokenService(server, tmp_path) as service:
        thread = threading.Thread(target=service.serve_forever)
        thread.start()
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", service.url)
        yield service
        service.shutdown()
        thread.join()


@pytest.mark.parametrize("is_of_environment", [True, False])
def test_a_role_by_web_identity_gives_credentials(
    is_of_environment: bool,
    home: Home,
    server: S3Server,
    tokens: TokenService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (home.folder / "token").write_text("the-token")
    role, file = "arn:aws:iam::1:role/reads", home.folder / "token"
    options = {"endpoint": server.endpoint, "region": "us-east-1"}
    options["root_certificate"] = tokens.certificate
    if is_of_environment:  # as a Kubernetes pod of AWS has them
        monkeypatch.setenv("AWS_ROLE_ARN", role)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(file))
    else:
        home.write(f"[profile x]\nrole_arn = {role}\nweb_identity_token_file = {file}\n")
        options["profile"] = "x"
    assert read(**options) == b"content"
    assert tokens.asked[0]["WebIdentityToken"] == ["the-token"]
    assert tokens.asked[0]["RoleArn"] == [role]
    tokens.is_refusing = True
    with pytest.raises((ConfigError, DatasetError), match="is refused by the store") as error:
        read(**options)
    assert "the-token" not in str(error.value)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("", "have no profile 'x'"),
        ("[profile x]\nsso_session = y\n", "the profile 'x' has sso_session, which boto3 alone"),
        ("[profile x]\nrole_arn = a\nsource_profile = y\n", "'x' has role_arn, which boto3 alone"),
        ("[profile x]\naws_access_key_id = a\n", "the profile 'x' has no aws_secret_access_key"),
        ("no section\nsecret", r"config' cannot be read \(MissingSectionHeaderError\)"),
    ],
)
def test_what_a_profile_lacks_is_told(config: str, told: str, home: Home) -> None:
    home.write(config)
    with pytest.raises(ConfigError, match=told) as error:
        read(profile="x")
    assert "secret\n" not in str(error.value)


def test_a_profile_is_of_s3_alone(home: Home) -> None:
    home.write("[profile x]\n")
    with pytest.raises(ConfigError, match="profile= is of AWS"):
        RecordIO("gs://bucket/a.rec", store={"profile": "x"})
    with pytest.raises(ConfigError, match="profile must be the name of a profile, got 3"):
        read(profile=3)
