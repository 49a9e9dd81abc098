"""Checks of requests that hold for every group, on every node.

They come before the question who coordinates the group, as in Kafka: a request that can never be valid is
refused by a node that is not the coordinator, too, and while groups are being loaded.

Source: GroupCoordinatorService.java of Kafka 4.3; the texts that clients are shown are Kafka's.
"""

from __future__ import annotations

from typing import Any

from odradek.coordinator.asked import Asked
from odradek.coordinator.groups.classic_members import refused_join
from odradek.coordinator.groups.group import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH
from odradek.coordinator.groups.group_type import Check
from odradek.coordinator.groups.record_codec import fits_record
from odradek.coordinator.groups.settings import GroupSettings
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from odradek.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from odradek.wire.messages.heartbeat import HeartbeatRequest
from odradek.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from odradek.wire.messages.leave_group import LeaveGroupRequest
from odradek.wire.messages.offset_delete import OffsetDeleteRequest
from odradek.wire.messages.sync_group import SyncGroupRequest

NONE = ErrorCode.NONE
MEMBER_ID_REQUIRED_SINCE = 1
"""ConsumerGroupHeartbeat version from which members choose their id."""


def check_name(asked: Asked[Any, Any], _: Any) -> Any:
    """Check of a request about one group."""
    return None if asked.request.group_id else asked.ticket.refused(ErrorCode.INVALID_GROUP_ID)


def check_described(asked: Asked[Any, Any], _: Any) -> Any:
    """Check of a request that describes one group."""
    return None if all(asked.request.group_ids) else asked.ticket.refused(ErrorCode.INVALID_GROUP_ID)


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


def _check_consumer(
    asked: Asked[ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse], settings: GroupSettings
) -> ConsumerGroupHeartbeatResponse | None:
    try:
        _refuse_consumer(asked.request, asked.client.version, settings)
    except KafkaError as refusal:
        return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.own_message)
    return None


def _refuse_consumer(request: ConsumerGroupHeartbeatRequest, version: int, settings: GroupSettings) -> None:
    """INVALID_REQUEST, UNSUPPORTED_ASSIGNOR; UNKNOWN_SERVER_ERROR for what no record has room for."""
    epoch, assignor = request.member_epoch, request.server_assignor
    if version >= MEMBER_ID_REQUIRED_SINCE or epoch > 0 or epoch == LEAVE_EPOCH:
        _refuse_blank(request.member_id, "MemberId")
    _refuse_blank(request.group_id, "GroupId")
    _refuse_blank(request.instance_id, "InstanceId")
    _refuse_blank(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_FOR_A_WHILE_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_FOR_A_WHILE_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    offered = settings.group_consumer_assignors
    if assignor is not None and assignor not in offered:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. Supported assignors: {', '.join(offered)}.",
        )
    if not fits_record(request.group_id, request.member_id, request.subscribed_topic_regex):
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _refuse_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"{name} can't be empty.")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


CLASSIC_CHECKS: dict[type, Check] = {
    JoinGroupRequest: _check_join,
    SyncGroupRequest: check_name,
    HeartbeatRequest: check_name,
    LeaveGroupRequest: check_name,
    OffsetDeleteRequest: check_name,
}
CONSUMER_CHECKS: dict[type, Check] = {
    ConsumerGroupDescribeRequest: check_described,
    ConsumerGroupHeartbeatRequest: _check_consumer,
}
