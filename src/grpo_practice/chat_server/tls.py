"""The certificate of a server of ours: what is wrong with it is said before anybody connects."""

import ssl
from pathlib import Path

from grpo_practice.errors import ConfigError

_MOST_TURNS = 20
"""Exchanges after which a handshake in memory would be over twice."""


def server_context(cert: Path, key: Path, name: str | None) -> ssl.SSLContext:
    """Return the context of a server with that certificate.

    Args:
        cert: The certificate, and those that lead to its authority (PEM).
        key: Its key (PEM).
        name: Host by which the server is asked; None where something in front has it.

    Raises:
        ConfigError: The files cannot be used, or a client would refuse the certificate whoever has
            signed it: it has expired, or is for another name.
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
            hint="both are PEM files, the key without a passphrase and of this certificate",
        ) from e
    try:
        _shake_hands(context, _client_of(cert, name), name)
    except ssl.SSLError as e:
        hint = "a new certificate, for the host by which programs ask"
        raise ConfigError(f"agent.proxy.tls_cert {cert.name}: {_reason(e)}", hint=hint) from e
    return context


def _no_passphrase() -> str:
    # Without it, the library would ask for one at the terminal.
    raise ValueError("the key has a passphrase")


def _client_of(cert: Path, name: str | None) -> ssl.SSLContext:
    """Return the context of a client that trusts the certificate's signer, and checks all else."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = name is not None
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(cert)
    return client


def _shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str | None) -> None:
    """Let both connect in memory; raise SSLError where the client refuses."""
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
        # The library names no reason where a file is no PEM at all.
        return (error.reason or "not both can be read").replace("_", " ").lower()
    return str(error) or type(error).__name__
