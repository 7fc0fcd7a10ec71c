"""Profiles of AWS's files: what they say of credentials, region and endpoint.

Imports what a store fails with, and boto3 for profiles that need it, if it is installed. Sources:
AWS's reference of shared config files; the order of botocore's providers.
"""

from __future__ import annotations

import configparser
import importlib
import importlib.util
import json
import shlex
import subprocess
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from reader.stores.fetcher.failure import Failure

__all__ = ["with_profile"]

_KEYS = {"aws_access_key_id", "access_key_id", "aws_secret_access_key", "secret_access_key"}
_BEFORE = ("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE")  # count before files
_OF_ROLE = ("role_arn", "web_identity_token_file", "role_session_name")
_REGIONS = ("region", "aws_region", "default_region", "aws_default_region")
_ENDPOINTS = ("endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url", "endpoint_url_s3")
# After so long keys in a file are read again, since tools write new ones; and boto3 is asked again,
# which gives none that end sooner.
_AGAIN = timedelta(minutes=10)
_PROCESS_S = 60.0  # for a program to give credentials
_Credentials = dict[str, Any]


def with_profile(options: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the options of a client of S3 with those that a profile adds.

    What is given in `options` counts first, then what a profile says that is named there, then the
    environment, then its AWS_PROFILE or the profile "default".

    Args:
        options: of the client, and "profile".
        environ: the environment.

    Raises:
        Failure: there is no such profile, or what it says is not supported.
    """
    found = dict(options)
    asked = found.pop("profile", None)
    if asked is not None and not isinstance(asked, str):
        raise Failure("option", f"profile must be the name of a profile, got {asked!r}")
    named = asked or environ.get("AWS_PROFILE") or environ.get("AWS_DEFAULT_PROFILE")
    profile = _Profile(named or "default", environ)
    if named and not profile.values:
        raise Failure("option", f"{profile.files} have no profile {named!r}")
    region, endpoint = profile.values.get("region"), profile.endpoint()
    if region and not _says(found, _REGIONS, {} if asked else environ):
        found["region"] = region
    if endpoint and not _says(found, _ENDPOINTS, {} if asked else environ):
        found["endpoint"] = endpoint
    is_given = any(found.get(name) for name in (*_KEYS, "skip_signature", "aws_skip_signature"))
    if not is_given and (asked or not any(map(environ.get, _BEFORE))):
        found |= profile.credentials(is_named=bool(named))
    return found


def _says(options: Mapping[str, Any], names: tuple[str, ...], environ: Mapping[str, str]) -> bool:
    upper = (name.upper() if name.startswith("aws_") else f"AWS_{name.upper()}" for name in names)
    return any(name in options for name in names) or any(environ.get(name) for name in upper)


class _Profile:
    """What AWS's two files say of a profile.

    Attributes:
        values: by their names there.
        files: the paths, for messages.
    """

    def __init__(self, name: str, environ: Mapping[str, str]) -> None:
        self._name = name
        home = Path(environ.get("HOME") or "~").expanduser() / ".aws"
        paths = [
            Path(environ.get(variable) or home / usual).expanduser()
            for variable, usual in (
                ("AWS_CONFIG_FILE", "config"),
                ("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            )
        ]
        self.files = f"'{paths[0]}' and '{paths[1]}'"
        self._paths = paths
        self.values = self._read()

    def _read(self) -> dict[str, str]:
        config, credentials = map(_sections, self._paths)
        self._config = config
        own = config.get("default", {}) if self._name == "default" else {}
        return {**own, **config.get(f"profile {self._name}", {}), **credentials.get(self._name, {})}

    def endpoint(self) -> str | None:
        """Return the address of S3; None: it is not said."""
        services = self._config.get(f"services {self.values.get('services')}", {})
        for line in services.get("s3", "").splitlines():
            key, _, value = line.partition("=")
            if key.strip() == "endpoint_url":
                return value.strip()
        return self.values.get("endpoint_url")

    def credentials(self, is_named: bool) -> dict[str, Any]:
        """Return the options that give credentials; none: the profile has none."""
        values = self.values
        if "role_arn" not in values and "aws_access_key_id" in values:
            self._keys()  # refuses a profile without a secret now
            return {"credential_provider": self._keys}
        if "role_arn" in values and "web_identity_token_file" in values:
            return {name: values[name] for name in _OF_ROLE if name in values}
        if "role_arn" not in values and "credential_process" in values:
            return {"credential_provider": _process(self._name, values["credential_process"])}
        others = [name for name in values if name.startswith(("sso_", "role_", "login_"))]
        if not others or not is_named:
            return {}
        if importlib.util.find_spec("boto3") is not None:
            return {"credential_provider": _by_boto3(self._name, values)}
        raise Failure(
            "option",
            f"the profile {self._name!r} has {others[0]}, which boto3 alone reads, and that is not"
            " installed. Run pip install boto3, or make another profile with the line"
            f" credential_process = aws configure export-credentials --profile {self._name}"
            " --format process",
        )

    def _keys(self) -> _Credentials:
        """Return the keys that the files hold now."""
        values = self._read()
        try:
            return {
                "access_key_id": values["aws_access_key_id"],
                "secret_access_key": values["aws_secret_access_key"],
                "token": values.get("aws_session_token"),
                "expires_at": datetime.now(timezone.utc) + _AGAIN,
            }
        except KeyError as error:
            raise Failure("option", f"the profile {self._name!r} has no {error.args[0]}") from None


def _process(name: str, command: str) -> Callable[[], _Credentials]:
    """Return what runs a program that prints credentials in JSON."""

    def credentials() -> _Credentials:
        try:
            done = subprocess.run(
                shlex.split(command),
                check=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                timeout=_PROCESS_S,
            )
            said = json.loads(done.stdout)
            until = said.get("Expiration")
            return {
                "access_key_id": said["AccessKeyId"],
                "secret_access_key": said["SecretAccessKey"],
                "token": said.get("SessionToken"),
                "expires_at": until and datetime.fromisoformat(until.replace("Z", "+00:00")),
            }
        except (OSError, subprocess.SubprocessError, ValueError, LookupError, TypeError) as error:
            # neither the command nor what it printed: both may have secrets
            raise Failure(
                "refused",
                f"the credential_process of the profile {name!r} gave no credentials"
                f" ({type(error).__name__})",
            ) from None

    return credentials


def _by_boto3(name: str, values: Mapping[str, str]) -> Callable[[], _Credentials]:
    """Return what gives boto3's credentials of a profile, which it renews."""
    remedy = ""
    if any(each.startswith("sso_") for each in values):
        remedy = f". Run aws sso login --profile {name}"

    def refused(kind: str, reason: str) -> Failure:
        return Failure(
            kind, f"boto3 gives no credentials of the profile {name!r} ({reason}){remedy}"
        )

    try:
        session = importlib.import_module("boto3").Session(profile_name=name)
        found = session.get_credentials()
    except Exception as error:  # of many types
        raise refused("option", type(error).__name__) from None
    if found is None:
        raise refused("option", "it says none")

    def credentials() -> _Credentials:
        try:
            keys = found.get_frozen_credentials()
        except Exception as error:  # of many types, whose texts may have secrets
            raise refused("refused", type(error).__name__) from None
        return {
            "access_key_id": keys.access_key,
            "secret_access_key": keys.secret_key,
            "token": keys.token or None,
            "expires_at": datetime.now(timezone.utc) + _AGAIN,
        }

    return credentials


def _sections(path: Path) -> dict[str, dict[str, str]]:
    """Return the sections of a file; none: there is no such file. Failure: it cannot be read."""
    parser = configparser.RawConfigParser(strict=False, default_section="\0")
    try:
        with path.open(encoding="utf-8") as file:
            parser.read_file(file)
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, configparser.Error) as error:  # its text may have secrets
        raise Failure("option", f"'{path}' cannot be read ({type(error).__name__})") from None
    return {
        " ".join(part.strip("\"'") for part in name.split(maxsplit=1)): dict(parser[name])
        for name in parser.sections()
    }
