"""Checks of requests that hold for every group, on every node.

They come before the question who coordinates the group, as in Kafka: a request that can never be valid is
refused by a node that is not the coordinator, too, and while groups are being loaded.

Source: GroupCoordinatorService.java of Kafka 4.3; the texts that clients are shown are Kafka's.
"""

from __future__ import annotations

from typing import Any

from odradek.coordinator.asked import Asked
from odradek.coordinator.groups.classic_members import refused_join
from odradek.coordinator.groups.consumer_commands import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribeConsumerGroup,
)
from odradek.coordinator.groups.group_type import Check
from odradek.coordinator.groups.record_codec import fits_record
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.offset_delete import OffsetDeleteRequest
from odradek.wire.messages.sync_group import SyncGroupRequest

NONE = ErrorCode.NONE
MEMBER_ID_REQUIRED_SINCE = 1
"""ConsumerGroupHeartbeat version from which members choose their id."""


def _check_name(asked: Asked[Any, Any], _: Any) -> Any:
    return None if asked.request.group_id else asked.refused(ErrorCode.INVALID_GROUP_ID)


def _check_consumer_name(command: DescribeConsumerGroup, _: Any) -> Any:
    return None if command.group_id else command.refused(ErrorCode.INVALID_GROUP_ID)


def _check_join(
    asked: Asked[JoinGroupRequest, JoinGroupResponse], settings: GroupSettings
) -> JoinGroupResponse | None:
    request = asked.request
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not request.group_id:
        code = ErrorCode.INVALID_GROUP_ID
    elif not shortest <= request.session_timeout_ms <= longest:
        code = ErrorCode.INVALID_SESSION_TIMEOUT
    else:
        return None
    return refused_join(code, request.member_id)


def _check_consumer(command: ConsumerHeartbeat, settings: GroupSettings) -> ConsumerHeartbeatReply | None:
    try:
        _refuse_consumer(command, settings)
    except KafkaError as refusal:
        return ConsumerHeartbeatReply(refusal.code, refusal.own_message)
    return None


def _refuse_consumer(command: ConsumerHeartbeat, settings: GroupSettings) -> None:
    """INVALID_REQUEST, UNSUPPORTED_ASSIGNOR; UNKNOWN_SERVER_ERROR for what no record has room for."""
    epoch, assignor = command.member_epoch, command.server_assignor
    if command.version >= MEMBER_ID_REQUIRED_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _refuse_blank(command.member_id, "MemberId")
    _refuse_blank(command.group_id, "GroupId")
    _refuse_blank(command.instance_id, "InstanceId")
    _refuse_blank(command.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if command.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if command.owned is None or command.owned:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if command.subscribed_topic_names is None and command.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH:
        if command.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    offered = settings.group_consumer_assignors
    if assignor is not None and assignor not in offered:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(offered)}.",
        )
    if not fits_record(command.group_id, command.member_id, command.subscribed_topic_regex):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


CLASSIC_CHECKS: dict[type, Check] = {
    JoinGroupRequest: _check_join,
    SyncGroupRequest: _check_name,
    HeartbeatRequest: _check_name,
    LeaveGroupRequest: _check_name,
    OffsetDeleteRequest: _check_name,
}
CONSUMER_CHECKS: dict[type, Check] = {
    DescribeConsumerGroup: _check_consumer_name,
    ConsumerHeartbeat: _check_consumer,
}
