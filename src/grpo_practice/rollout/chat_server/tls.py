"""The certificate of our own server, checked before any client connects."""

import ssl
from pathlib import Path

from grpo_practice.core.errors import ConfigError

_MOST_TURNS = 20
"""Maximum number of message exchanges, twice as many as a handshake in memory needs."""


def server_context(cert: Path, key: Path, name: str | None) -> ssl.SSLContext:
    """Return the TLS context of a server with that certificate.

    Args:
        cert: The certificate, followed by the chain that leads to its authority (PEM).
        key: The certificate's private key (PEM).
        name: Host name that clients use; None if a server in front handles it.

    Raises:
        ConfigError: The files cannot be used, or clients would reject the certificate no matter who
            signed it: it has expired or was issued for another name.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for what, path in (("tls_cert", cert), ("tls_key", key)):
        if not path.is_file():
            raise ConfigError(f"agent.proxy.{what}: there is no file {path}")
    try:
        context.load_cert_chain(cert, key, password=_no_passphrase)
    except (OSError, ValueError) as e:
        raise ConfigError(
            f"agent.proxy.tls_cert {cert.name}, tls_key {key.name}: {_reason(e)}",
            hint="both must be PEM files; the key must be the certificate's, without a passphrase",
        ) from e
    try:
        _shake_hands(context, _client_of(cert, name), name)
    except ssl.SSLError as e:
        hint = "use a valid certificate for the host that programs connect to"
        raise ConfigError(f"agent.proxy.tls_cert {cert.name}: {_reason(e)}", hint=hint) from e
    return context


def _no_passphrase() -> str:
    # Without this callback, the library would prompt at the terminal.
    raise ValueError("the key has a passphrase")


def _client_of(cert: Path, name: str | None) -> ssl.SSLContext:
    """Return the context of a client that trusts the certificate's signer and checks the rest."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = name is not None
    # The chain in the file may end before its root; without this, only a root would be trusted.
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    return client


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> None:
    """Connect server and client in memory; raise SSLError if the client rejects the certificate."""
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(down, up, server_hostname=name),
        server.wrap_bio(up, down, server_side=True),
    ]
    for _ in range(_MOST_TURNS):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return str(error.verify_message).rstrip(".")
    if isinstance(error, ssl.SSLError):
        # The library gives no reason if a file is not PEM at all.
        return (error.reason or "one of them cannot be read").replace("_", " ").lower()
    return str(error) or type(error).__name__
