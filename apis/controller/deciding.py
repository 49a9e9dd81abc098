"""A request whose decision becomes records of the metadata log, and then the response."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from odradek.apis.api import WorkResponse
from odradek.wire.errors import KafkaError

if TYPE_CHECKING:
    from odradek.apis.api import RequestContext
    from odradek.apis.controller.parts import ControllerParts
    from odradek.apis.coordinators import Refuse
    from odradek.coordinator.cluster.view import ClusterView
    from odradek.coordinator.controller.draft import RecordDraft
    from odradek.wire.messages.metadata_records import MetadataRecord
    from odradek.wire.work import Work


class Decided(Protocol):
    """A `Decision`, or one with more to it."""

    @property
    def records(self) -> list[MetadataRecord]: ...

    @property
    def response(self) -> Any: ...


Decide = Callable[["ClusterView", Any, "RequestContext"], Decided]
"""A decision about a request, by the newest view. KafkaError: a refusal of all of it."""


class Deciding:
    """The handler of such an API. One decision after the other: each sees the effect of those before."""

    def __init__(
        self,
        parts: ControllerParts,
        refuse: Refuse,
        decide: Decide,
        done: Callable[[Any, Any, RequestContext], None] | None = None,
    ) -> None:
        """`done` is called with a decision, its request and context, once its records are in the log."""
        self._controller = parts.plane
        self._changes = parts.changes
        self._refuse = refuse
        self._decide = decide
        self._done = done

    def __call__(self, request: Any, context: RequestContext) -> WorkResponse:
        return WorkResponse(self._changes, self._deciding(request, context), context)

    def _deciding(self, request: Any, context: RequestContext) -> Work[Any]:
        def edit(draft: RecordDraft) -> Work[Decided]:
            decision = self._decide(self._controller.view, request, context)
            draft.add_records(decision.records)
            return decision
            yield None

        try:
            decision = yield from self._controller.changing(edit)
        except KafkaError as error:
            return self._refused(request, context, error)
        if self._done is not None:
            self._done(decision, request, context)
        return decision.response

    def _refused(self, request: Any, context: RequestContext, error: KafkaError) -> Any:
        response = self._refuse(request, context.api_version, error.code)
        if hasattr(response, "error_message"):
            response.error_message = error.message
        return response
