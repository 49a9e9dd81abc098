import base64

import pytest

from odradek.coordinator.security.scram_users import (
    NO_USERS,
    Deletion,
    ScramUsers,
    Upsertion,
    credential_of,
    from_row,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.scram import salted_password, verify_proof

SHA_256, SHA_512 = 1, 2


def upsertion(user="ann", mechanism=SHA_256, iterations=4096, salt=b"salt", password="secret"):
    salted = salted_password(mechanism, password, salt, iterations)
    return Upsertion(user, mechanism, iterations, salt, salted)


def codes(changes):
    return {user: error and error.code for user, error in changes.results.items()}


def test_what_is_stored_of_a_password_is_as_in_rfc_7677():
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = credential_of(SHA_256, salt, salted_password(SHA_256, "pencil", salt, 4096), 4096)
    first = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    message = f"{first},r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,c=biws,r={nonce}".encode()
    proof = base64.b64decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=")
    assert verify_proof(SHA_256, credential.stored_key, message, proof)
    assert not verify_proof(SHA_256, credential.stored_key, message + b"x", proof)
    assert not verify_proof(SHA_256, credential.stored_key, message, proof[:-1])
    assert not verify_proof(SHA_256, credential.stored_key, message, bytes(32))


def test_a_user_is_made_replaced_and_removed():
    made = NO_USERS.alterations([], [upsertion(), upsertion("bob", SHA_512, 8192)], are_supported=True)
    assert codes(made) == {"ann": None, "bob": None}
    users = NO_USERS.with_changes(made.credentials)
    assert users.credential("ann", SHA_256).iterations == 4096
    assert users.credential("ann", SHA_512) is None
    assert NO_USERS.credential("ann", SHA_256) is None
    replaced = users.with_changes(
        users.alterations([], [upsertion(iterations=5000)], are_supported=True).credentials
    )
    assert replaced.credential("ann", SHA_256).iterations == 5000
    removed = replaced.with_changes(
        replaced.alterations([Deletion("ann", SHA_256)], [], are_supported=True).credentials
    )
    assert list(removed.of_users) == ["bob"]


@pytest.mark.parametrize(
    ("deletions", "upsertions", "expected"),
    [
        ([], [upsertion("")], {"": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [Upsertion("ann", 0, 4096, b"s", b"p")], {"ann": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([], [upsertion(iterations=4095)], {"ann": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion(iterations=16385)], {"ann": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
        ([], [upsertion(iterations=16384)], {"ann": None}),
        ([Deletion("ann", SHA_256)], [], {"ann": ErrorCode.RESOURCE_NOT_FOUND}),
        ([Deletion("ann", 9)], [], {"ann": ErrorCode.UNSUPPORTED_SASL_MECHANISM}),
        ([], [upsertion(), upsertion(mechanism=SHA_512)], {"ann": ErrorCode.DUPLICATE_RESOURCE}),
        (
            [],
            [upsertion(), upsertion(mechanism=SHA_512), upsertion("bob")],
            {"ann": ErrorCode.DUPLICATE_RESOURCE, "bob": None},
        ),
        ([], [upsertion(iterations=1), upsertion()], {"ann": ErrorCode.UNACCEPTABLE_CREDENTIAL}),
    ],
)
def test_a_change_is_refused_for_its_user_alone(deletions, upsertions, expected):
    changes = NO_USERS.alterations(deletions, upsertions, are_supported=True)
    assert codes(changes) == expected
    assert {user for user, _ in changes.credentials} == {user for user, code in expected.items() if not code}


def test_a_metadata_version_without_users_refuses_all():
    changes = NO_USERS.alterations([], [upsertion()], are_supported=False)
    assert codes(changes) == {"ann": ErrorCode.UNSUPPORTED_VERSION}
    assert changes.credentials == {}


def test_users_are_described_by_name():
    users = NO_USERS.with_changes(
        NO_USERS.alterations(
            [], [upsertion("bob"), upsertion("ann", SHA_512, 9000)], are_supported=True
        ).credentials
    )
    assert list(users.described(None)) == list(users.described([])) == ["ann", "bob"]
    found = users.described(["bob", "carl", "dora", "dora"])
    assert [one.iterations for one in found["bob"].values()] == [4096]
    assert found["carl"].code == ErrorCode.RESOURCE_NOT_FOUND
    assert found["dora"].code == ErrorCode.DUPLICATE_RESOURCE
    assert all(isinstance(found[name], KafkaError) for name in ("carl", "dora"))


def test_a_row_is_read_as_it_was_written():
    for user in ("ann", "a/b", "with, signs=", "\xe9"):
        (key, credential), *_ = NO_USERS.alterations(
            [], [upsertion(user, SHA_512)], are_supported=True
        ).credentials.items()
        text = " ".join(one.hex() for one in (credential.salt, credential.stored_key, credential.server_key))
        assert from_row(f"SCRAM-SHA-512/{user}", f"{credential.iterations} {text}") == (key, credential)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("SCRAM-SHA-1/ann", f"4096 00 {'00' * 32} {'00' * 32}"),
        ("SCRAM-SHA-256/", f"4096 00 {'00' * 32} {'00' * 32}"),
        ("SCRAM-SHA-256/ann", f"4096 00 {'00' * 31} {'00' * 32}"),
        ("SCRAM-SHA-256/ann", f"many 00 {'00' * 32} {'00' * 32}"),
        ("SCRAM-SHA-256/ann", "4096 00"),
        ("SCRAM-SHA-256/ann", ""),
    ],
)
def test_a_row_that_is_no_user_is_refused_without_its_keys(key, value):
    with pytest.raises(ValueError, match=r".") as caught:
        from_row(key, value)
    assert "00" * 32 not in str(caught.value)


def test_what_is_printed_of_a_user_has_no_key():
    change = upsertion()
    credential = credential_of(change.mechanism, change.salt, change.salted_password, change.iterations)
    users = ScramUsers({("ann", SHA_256): credential})
    printed = f"{change} {credential} {users}"
    for secret in (change.salted_password, credential.stored_key, credential.server_key, credential.salt):
        assert repr(secret) not in printed
        assert secret.hex() not in printed


def test_users_that_do_not_exist_have_as_many_iterations_as_most():
    assert NO_USERS.usual_iterations == {SHA_256: 4096, SHA_512: 4096}
    some = [upsertion("a", iterations=8192), upsertion("b", iterations=8192), upsertion("c", iterations=5000)]
    users = NO_USERS.with_changes(NO_USERS.alterations([], some, are_supported=True).credentials)
    assert users.usual_iterations == {SHA_256: 8192, SHA_512: 4096}
