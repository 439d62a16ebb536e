"""Certificates of tests: valid, expired, of another name, of an authority that a client trusts."""

import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Certificate:
    cert: Path
    key: Path
    authority: Path

    @property
    def client(self) -> ssl.SSLContext:
        """A client that trusts the authority."""
        return ssl.create_default_context(cafile=self.authority)


def certificate(
    folder: Path, *names: str, until: datetime | None = None, name: str = "server"
) -> Certificate:
    authority = trustme.CA()
    made = authority.issue_cert(*names, not_after=until)
    paths = [folder / f"{name}-{what}.pem" for what in ("cert", "key", "authority")]
    made.private_key_pem.write_to_path(paths[1])
    for part in made.cert_chain_pems:
        part.write_to_path(paths[0], append=True)
    authority.cert_pem.write_to_path(paths[2])
    return Certificate(*paths)


YESTERDAY = datetime(2020, 1, 2, tzinfo=UTC)
