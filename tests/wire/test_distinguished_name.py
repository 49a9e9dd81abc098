"""The name in a certificate. The table is Java's own output: `compat_tests/security/test_principals.py`."""

import pytest

from odradek.wire.distinguished_name import (
    DamagedCertificate,
    alternative_names,
    issuer_of,
    last_octets,
    name_text,
    subject_of,
)
from tests.wire.der_names import (
    BMP,
    CN,
    DC,
    EMAIL,
    GENERAL,
    HIGH,
    IA5,
    NUMERIC,
    ORGANISATION,
    OU,
    PRINTABLE,
    SERIAL_NUMBER,
    STREET,
    T61,
    UID,
    UNIVERSAL,
    UTF8,
    C,
    L,
    der,
    name,
    object_id,
)

NAMES = [
    (
        name(
            (C, PRINTABLE, b"DE"),
            (ORGANISATION, UTF8, b"Example"),
            (OU, UTF8, b"Users"),
            (CN, UTF8, b"alice"),
        ),
        "CN=alice,OU=Users,O=Example,C=DE",
    ),
    (name(), ""),
    (name((CN, UTF8, b"")), "CN="),
    (
        name((DC, IA5, b"org"), (DC, IA5, b"example"), (UID, UTF8, b"u"), (STREET, UTF8, b"s")),
        "STREET=s,UID=u,DC=example,DC=org",
    ),
    (name([(CN, UTF8, b"a"), (OU, UTF8, b"b")], (ORGANISATION, UTF8, b"c")), "O=c,CN=a+OU=b"),
    (
        name((CN, UTF8, b'Smith, John + "Jack" <x>;y\\z=1#2')),
        'CN=Smith\\, John \\+ \\"Jack\\" \\<x\\>\\;y\\\\z\\=1\\#2',
    ),
    (name((CN, UTF8, b"  two ")), "CN=\\ \\ two\\ "),
    (name((CN, UTF8, b" ")), "CN=\\ "),
    (name((CN, UTF8, "Jürgen 日本 😀".encode())), "CN=Jürgen 日本 😀"),
    (name((CN, UTF8, b"a\0b\rc")), "CN=a\\00b\rc"),
    (
        name((EMAIL, IA5, b"a@b.c"), (CN, UTF8, b"x")),
        "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
    ),
    (name((SERIAL_NUMBER, PRINTABLE, b"12")), "2.5.4.5=#13023132"),
    (name((HIGH, UTF8, b"x")), "2.999.3=#0c0178"),
    (name((CN, NUMERIC, b"12")), "CN=#12023132"),
    (name((CN, T61, b"t"), (L, GENERAL, b"g")), "L=g,CN=t"),
    (name((CN, BMP, b"\0a")), "CN=\\00a"),
    (name((CN, UNIVERSAL, b"\0\0\0a")), "CN=#1c0400000061"),
]


@pytest.mark.parametrize(("encoded", "text"), NAMES)
def test_a_name_is_written_as_java_writes_it(encoded: bytes, text: str) -> None:
    assert name_text(encoded) == text


def certificate(
    subject: bytes, issuer: bytes, *more: bytes, version: bytes = der(0xA0, der(2, b"\2"))
) -> bytes:
    fields = [version, der(2, b"\1"), der(0x30, b""), issuer, der(0x30, b""), subject, der(0x30, b""), *more]
    return der(0x30, der(0x30, b"".join(fields)) + der(0x30, b"") + der(3, b"\0"))


def test_subject_and_issuer_are_found_with_and_without_a_version() -> None:
    subject, issuer = name((CN, UTF8, b"s")), name((CN, UTF8, b"i"))
    for one in (certificate(subject, issuer), certificate(subject, issuer, version=b"")):
        assert subject_of(one) == subject
        assert issuer_of(one) == issuer
        assert alternative_names(one) == frozenset()


def test_alternative_names_are_found_whether_critical_or_not() -> None:
    names = [der(0x82, b"a.example"), der(0x87, bytes([127, 0, 0, 1]))]
    value = der(4, der(0x30, b"".join(names)))
    other = der(0x30, object_id((2, 5, 29, 15)) + der(4, der(3, b"\0\1")))
    for critical in (b"", der(1, b"\xff")):
        own = der(0x30, object_id((2, 5, 29, 17)) + critical + value)
        one = certificate(name(), name(), der(0xA3, der(0x30, other + own)))
        assert alternative_names(one) == set(names)


@pytest.mark.parametrize("extension", [b"", der(1, b"\xff"), der(6, b""), der(4, b"")])
def test_an_extension_without_a_type_is_damage(extension: bytes) -> None:
    one = certificate(name(), name(), der(0xA3, der(0x30, der(0x30, extension))))
    with pytest.raises(DamagedCertificate):
        alternative_names(one)


def test_every_cut_of_a_certificate_is_refused() -> None:
    own = der(0x30, object_id((2, 5, 29, 17)) + der(4, der(0x30, der(0x82, b"a.example"))))
    whole = certificate(name((CN, UTF8, b"s")), name(), der(0xA3, der(0x30, own)))
    for size in range(len(whole)):
        with pytest.raises(DamagedCertificate):
            subject_of(whole[:size])


def test_nothing_but_damage_is_raised_for_flipped_bytes() -> None:
    own = der(0x30, object_id((2, 5, 29, 17)) + der(4, der(0x30, der(0x82, b"a.example"))))
    whole = certificate(name((CN, UTF8, b"s"), (EMAIL, IA5, b"a@b")), name(), der(0xA3, der(0x30, own)))
    damaged = 0
    for position in range(len(whole)):
        for bit in range(8):
            flipped = bytearray(whole)
            flipped[position] ^= 1 << bit
            try:
                name_text(subject_of(bytes(flipped)))
                alternative_names(bytes(flipped))
            except DamagedCertificate:
                damaged += 1
    assert damaged > 100


def test_a_type_of_any_length_is_refused_at_once() -> None:
    with pytest.raises(DamagedCertificate):
        name_text(der(0x30, der(0x31, der(0x30, der(6, b"\xff" * 90_000 + b"\1") + der(UTF8, b"x")))))


def test_the_octets_at_the_end_of_a_sequence_are_found() -> None:
    assert last_octets(der(0x30, der(0x30, b"") + der(4, b"x" * 300))) == b"x" * 300
    with pytest.raises(DamagedCertificate):
        last_octets(der(0x30, der(0x30, b"")))
