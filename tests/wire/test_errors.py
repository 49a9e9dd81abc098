"""Error codes: complete, with texts, and retriable where Kafka's clients retry."""

from kio.schema.errors import ErrorCode as TheirErrorCode

from odradek.wire.errors import ErrorCode, KafkaError, MalformedMessage, error_message, is_retriable
from tests.kit.collecting import collected

OF_4_4 = {
    ErrorCode.GROUP_DELETION_FAILED,
    ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
    ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
}
"""Codes that kio does not know yet; none is retriable."""


def test_the_codes_are_those_of_kafka():
    assert [code.value for code in ErrorCode] == list(range(-1, 137))
    assert {code.value: code.name for code in ErrorCode if code not in OF_4_4} == {
        code.value: code.name.upper() for code in TheirErrorCode
    }


def test_every_code_has_a_text_and_says_whether_to_retry():
    with collected() as failures:
        retriable = {code.value: code.retriable for code in TheirErrorCode}
        for code in ErrorCode:
            with failures.of(code.name):
                text = error_message(code)
                assert text.endswith(".")
                assert text[0].isupper()
                assert is_retriable(code) == retriable.get(code.value, False)


def test_a_refusal_carries_its_code_and_a_text():
    refusal = KafkaError(ErrorCode.INVALID_CONFIG, "retention.ms: 'x' is no number")
    assert refusal.code == 40
    assert refusal.message == "retention.ms: 'x' is no number"
    assert str(refusal) == "INVALID_CONFIG: retention.ms: 'x' is no number"
    assert KafkaError(ErrorCode.NOT_COORDINATOR).message == error_message(ErrorCode.NOT_COORDINATOR)


def test_malformed_bytes_are_no_refusal():
    assert not issubclass(MalformedMessage, KafkaError)


def test_a_message_about_the_longest_name_still_fits_into_an_answer():
    error = KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "\U0001f600" * 32_767)
    assert len(error.message.encode()) < 32_767
