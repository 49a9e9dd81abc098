"""TLS of the connections of one client."""

import socket
from typing import TYPE_CHECKING

from odradek.client.client_error import ClientError, Disconnected
from odradek.config.config_error import ConfigError
from odradek.security.client_security import ClientSecurity

if TYPE_CHECKING:
    import ssl


class Secured:
    """TLS and SASL of the connections of one client; key stores are read for the first connection."""

    def __init__(self, security: ClientSecurity) -> None:
        self.security = security
        self._context: ssl.SSLContext | None = None

    def sealed(self, connected: socket.socket, host: str, address: str) -> socket.socket:
        """The socket with TLS, if it is to have that. `Disconnected` if it is lost; ClientError if the two
        sides do not trust each other, for key stores that cannot be read."""
        if not self.security.has_tls:
            return connected
        import ssl

        if self._context is None:
            self._context = self._made()
        try:
            return self._context.wrap_socket(connected, server_hostname=host)
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise Disconnected(
                f"{address} closes the connection in the TLS handshake: it may have no TLS, or not take the "
                "client's certificate"
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise ClientError(
                f"the certificate of {address} is not trusted: {error.verify_message}"
            ) from None
        except ssl.SSLError as error:
            raise ClientError(f"the TLS handshake with {address} fails: {_tls_reason(error)}") from None
        except OSError as error:
            raise Disconnected(f"{address} cannot be reached with TLS: {reason_of(error)}") from error

    def _made(self) -> "ssl.SSLContext":
        try:
            context = self.security.context()
        except ConfigError as error:
            raise ClientError(str(error).rstrip(".")) from None
        assert context is not None
        return context


def _tls_reason(error: "ssl.SSLError") -> str:
    if error.reason == "WRONG_VERSION_NUMBER":
        return "what answers has no TLS"
    return error.reason or "the other side ends it"


def reason_of(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
