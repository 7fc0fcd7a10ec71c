"""Profiles of AWS's files: a store is read by their keys, region and endpoint."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from reader import ConfigError, DatasetError, RecordIO, RecordWriter, ShardCache
from tests.processes import ROOT
from tests.stores.servers import S3Server, own_certificate, s3_server

pytestmark = pytest.mark.slow

APART = str(Path(sys.prefix) / "apart")  # what other tests must not find
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
    """An STS and a portal of SSO: it gives the server's keys for a token, or to whom has others."""

    daemon_threads = True

    def __init__(self, server: S3Server, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), TokenServiceHandler)
        context, self.certificate = own_certificate(folder)
        self.socket = context.wrap_socket(self.socket, server_side=True)
        self.s3, self.is_refusing, self.seconds = server, False, 3600.0
        self.asked: list[dict[str, list[str]]] = []
        self.headers: list[Message] = []

    @property
    def url(self) -> str:
        return f"https://localhost:{self.server_port}"


class TokenServiceHandler(BaseHTTPRequestHandler):
    server: TokenService

    def do_POST(self) -> None:
        asked = parse_qs(self.path.partition("?")[2])
        if not asked:
            asked = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        until = datetime.now(timezone.utc) + timedelta(seconds=self.server.seconds)
        action = asked["Action"][0]
        body = (
            f"<{action}Response><{action}Result><Credentials>"
            f"<AccessKeyId>{self.server.s3.access_key}</AccessKeyId>"
            f"<SecretAccessKey>{self.server.s3.secret_key}</SecretAccessKey>"
            f"<SessionToken></SessionToken><Expiration>{until:%Y-%m-%dT%H:%M:%SZ}</Expiration>"
            f"</Credentials></{action}Result></{action}Response>"
        )
        self._answer(asked, body)

    def do_GET(self) -> None:
        keys = {
            "accessKeyId": self.server.s3.access_key,
            "secretAccessKey": self.server.s3.secret_key,
            "sessionToken": "",
            "expiration": int(1000 * (time.time() + self.server.seconds)),
        }
        self._answer(parse_qs(self.path.partition("?")[2]), json.dumps({"roleCredentials": keys}))

    def _answer(self, asked: dict[str, list[str]], body: str) -> None:
        self.server.asked.append(asked)
        self.server.headers.append(self.headers)
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


# -- profiles that boto3 reads ----------------------------------------------------------------


@pytest.fixture
def portal(tokens: TokenService, home: Home, monkeypatch: pytest.MonkeyPatch) -> TokenService:
    """Have boto3 found, and its services asked here."""
    if PathFinder.find_spec("boto3", [APART]) is None:
        pytest.skip("boto3 is not installed: see requirements/apart.txt")
    monkeypatch.setattr(sys, "path", [*sys.path, APART])
    monkeypatch.setenv("AWS_ENDPOINT_URL_SSO", tokens.url)
    (home.folder / "pem").write_text(tokens.certificate)
    monkeypatch.setenv("AWS_CA_BUNDLE", str(home.folder / "pem"))
    return tokens


ROLE = "arn:aws:iam::123456789012:role/reads"
S3 = "region = us-east-1\nendpoint_url = ENDPOINT\n"
CHAIN = f"[profile x]\n{S3}role_arn = {ROLE}\nsource_profile = y\n"
CHAIN += f"[profile y]\n{S3}role_arn = {ROLE}-others\nsource_profile = z\n"
OF_Z = "[z]\naws_access_key_id = of-z\naws_secret_access_key = secret-of-z\n"


def test_a_chain_of_roles_gives_credentials(home: Home, portal: TokenService) -> None:
    home.write(CHAIN, OF_Z)
    assert read(profile="x") == b"content"
    assert [asked["RoleArn"] for asked in portal.asked] == [[f"{ROLE}-others"], [ROLE]]
    first, second = (headers["Authorization"] for headers in portal.headers)
    assert "Credential=of-z/" in first
    assert f"Credential={home.server.access_key}/" in second  # of the first role
    portal.is_refusing = True
    with pytest.raises(ConfigError, match="boto3 gives no credentials of the profile 'x'") as error:
        read(profile="x")
    assert "secret-of-z" not in str(error.value)


def test_credentials_of_a_role_are_renewed_before_they_end(
    home: Home, portal: TokenService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STS gives them for at least 15 minutes: they are never used for longer than they hold."""
    home.write(CHAIN, OF_Z)
    portal.seconds = 900
    text = """
        import os
        from reader.stores.fetcher.aws_profile import with_profile
        credentials = with_profile({"profile": "x"}, os.environ)["credential_provider"]
        for _ in range(3):
            print(credentials()["expires_at"].timestamp())
    """
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), APART]))
    command = [sys.executable, "-c", textwrap.dedent(text)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert (
        len(portal.asked) >= 3 + 1
    )  # the role is asked for each time, and its source at least once
    times = [float(line) for line in done.stdout.splitlines()]
    assert times == sorted(times)
    assert times[-1] < time.time() + portal.seconds


@pytest.mark.parametrize("is_session", [True, False])
def test_a_login_of_sso_gives_credentials(
    is_session: bool, home: Home, portal: TokenService
) -> None:
    url = "https://company.awsapps.com/start"
    login, account = f"sso_start_url = {url}\nsso_region = us-east-1\n", "sso_account_id = 7\n"
    account += f"sso_role_name = reads\n{S3}"
    if is_session:
        home.write(f"[profile x]\nsso_session = y\n{account}[sso-session y]\n{login}")
    else:
        home.write(f"[profile x]\n{login}{account}")
    with pytest.raises(ConfigError, match=r"of the profile 'x' .*Run aws sso login"):
        read(profile="x")
    name = hashlib.sha1(b"y" if is_session else url.encode()).hexdigest()
    said = {"startUrl": url, "region": "us-east-1", "accessToken": "the-token"}
    (home.folder / "sso" / "cache").mkdir(parents=True)
    token = home.folder / "sso" / "cache" / f"{name}.json"
    token.write_text(json.dumps({**said, "expiresAt": "2099-01-01T00:00:00Z"}))
    assert read(profile="x") == b"content"
    assert portal.asked[0] == {"role_name": ["reads"], "account_id": ["7"]}
    assert portal.headers[0]["x-amz-sso_bearer_token"] == "the-token"
    token.write_text(json.dumps({**said, "expiresAt": "2001-01-01T00:00:00Z"}))
    with pytest.raises(ConfigError, match=r"of the profile 'x' .*Run aws sso login") as error:
        read(profile="x")
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
