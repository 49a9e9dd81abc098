"""A broker in this process with a listener for each secured protocol, and a user of each mechanism."""

import contextlib

from odradek import Broker
from odradek.config.broker_config import load
from odradek.config.first_users import parse
from odradek.embedding.free_port import free_port
from odradek.server.security.stopped_users import add

SECURITY = "org.apache.kafka.common.security"
PASSWORD = "the-password-of-ann"
SCRAM = f'{SECURITY}.scram.ScramLoginModule required username="ann" password="{PASSWORD}";'
PLAIN = f'{SECURITY}.plain.PlainLoginModule required username="ann" password="{PASSWORD}";'
PLAIN_USERS = f'{SECURITY}.plain.PlainLoginModule required user_ann="{PASSWORD}";'
MECHANISMS = {"PLAIN": PLAIN, "SCRAM-SHA-256": SCRAM, "SCRAM-SHA-512": SCRAM}
"""And how ann logs in."""
PROTOCOLS = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")


@contextlib.contextmanager
def running(authority, directory, **more):
    """The ports of its listeners by their names. SSL wants a certificate of the client."""
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        (user,) = parse(f"{mechanism}=[name=ann,password={PASSWORD}]")
        add(load(data_dir=directory), user)
    ports = {name: free_port() for name in PROTOCOLS}
    options = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "inter.broker.listener.name": "SSL",
        "connection.failed.authentication.delay.ms": "1",
        "ssl.client.auth": "required",
        **authority.server_options(),
        **{f"ssl.{name.replace('_', '.')}": text for name, text in authority.trusting().items()},
        **{f"listener.name.{name.lower()}.plain.sasl.jaas.config": PLAIN_USERS for name in PROTOCOLS[1:]},
        **more,
    }
    with Broker(options=options, data_dir=directory):
        yield ports
