"""Access control lists: which principal may do what, from which host, with which resources.

`AclRules` is immutable. A change makes other rules with a higher `version`, which share what did not change.

A decision looks at the rules whose pattern fits the name of the resource: literal with the same name, literal
`*`, or prefixed. Of these the rules count that name the principal (or `User:*`) and the host (or `*`). One
DENY of the operation refuses it. Else one ALLOW permits it; READ, WRITE, DELETE and ALTER permit DESCRIBE,
too, and ALTER_CONFIGS permits DESCRIBE_CONFIGS. ALL stands for each operation.

Source: StandardAuthorizerData, AclControlManager and Authorizer.authorizeByResourceType of Kafka.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from odradek.wire.acl_types import (
    CLUSTER_NAME,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.work import Work

CHANGES_MAX = 10_000
"""Rules that one request may create or delete, as in Kafka."""
NAMED_TWICE_MAX = 10
"""Several filters may fit the same rule, and each result has it; on average not more often than this."""
ACLS_PER_STEP = 500
"""About a millisecond."""
ANY_USER = "User:*"

_DENIED_BY = [1 << operation | 1 << Operation.ALL for operation in Operation]
_ALLOWED_BY = [*_DENIED_BY]
for _implies in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
    _ALLOWED_BY[Operation.DESCRIBE] |= 1 << _implies
_ALLOWED_BY[Operation.DESCRIBE_CONFIGS] |= 1 << Operation.ALTER_CONFIGS
"""By operation: the operations in rules that deny or allow it, as bits."""


class Acl(NamedTuple):
    """One rule. Ordered by resource first."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType
    principal: str
    """Such as `User:alice`; `User:*` for everybody."""
    host: str
    """An address as text, or `*`."""
    operation: Operation
    permission: Permission


class AclFilter(NamedTuple):
    """Which rules are meant: null (None) and ANY for all."""

    resource_type: ResourceType
    name: str | None
    pattern_type: PatternType
    """ANY: patterns with exactly this name. MATCH: patterns that fit this name."""
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    def fits(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self.pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and self._fits_name(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _fits_name(self, acl: Acl) -> bool:
        if self.name in (None, acl.name):
            return True
        if self.pattern_type is not PatternType.MATCH or self.name is None:
            return False
        if acl.pattern_type is PatternType.LITERAL:
            return acl.name == WILDCARD
        return self.name.startswith(acl.name)


def member_or_code(kind: type[IntEnum], code: int) -> Any:
    """The member of that kind; the number itself where it has no name here: controllers may be newer, and two
    rules of theirs are not the same."""
    found = kind(code)
    return code if found.name == "UNKNOWN" else found


Identities = tuple[tuple[str, str], ...]
"""The pairs of principal and host in rules that apply to a client."""


def identities_of(principal: str, host: str, networks: Iterable[str] = ()) -> Identities:
    """`host` is an address as Java writes it, `networks` are hosts of rules that have the address."""
    hosts = (host, WILDCARD, *networks)
    return tuple((name, one) for name in (principal, ANY_USER) for one in hosts)


class Network(NamedTuple):
    """The addresses that a host of a rule with a slash stands for, the first and the last included."""

    version: int
    """4 or 6."""
    first: int
    last: int


_IPV4_NETWORK = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_WIDTHS = {4: 32, 6: 128}
_JAVA_INT = re.compile(r"[+-]?\d+")
_NO_INT = 1 << 31
"""The first number that Java's int has not."""
_LEADING_ZEROS = re.compile(r"(?<![0-9A-Fa-f])0+(?=[0-9A-Fa-f])")


def network_of(host: str) -> Network:
    """The network that is written so (CIDR). Bits behind the prefix may be set. ValueError: it is none; the
    text is Kafka's."""
    address, _, length = host.partition("/")
    if ":" in host:
        return _network(6, *_ipv6_network(host, address, length))
    found = _IPV4_NETWORK.fullmatch(host)
    if found is None:
        raise ValueError(f"Could not parse [{host}]")
    *numbers, bits = (int(one) for one in found.groups())
    for value, highest in (*((number, 255) for number in numbers), (bits, _WIDTHS[4])):
        if value > highest:
            raise ValueError(f"Value [{value}] not in range [0,{highest}]")
    return _network(4, int.from_bytes(bytes(numbers), "big"), bits)


def _ipv6_network(host: str, address: str, length: str) -> tuple[int, int]:
    """Address as a number, and length of the prefix, as Java reads them: the address may be in brackets,
    and one that stands for an IPv4 address is none of IPv6."""
    bits = int(length) if _JAVA_INT.fullmatch(length) else _NO_INT
    if not -_NO_INT <= bits < _NO_INT:
        raise ValueError(f"Could not parse [{host}] - invalid prefix length")
    if not 0 <= bits <= _WIDTHS[6]:
        raise ValueError(f"Could not parse [{host}] - prefix length must be between 0 and {_WIDTHS[6]}")
    number = _ipv6_address(address)
    if number is None:
        raise ValueError(f"Could not parse [{address}]")
    if number >> 32 == 0xFFFF:
        raise ValueError(f"Could not parse [{address}] - not an IPv6 address")
    return number, bits


def _ipv6_address(text: str) -> int | None:
    """None where it is none. A scope has to be a number: which interfaces there are is not known here."""
    from ipaddress import IPv6Address

    if len(text) > 2 and text[0] == "[" and text[-1] == "]":
        text = text[1:-1]
    text, mark, scope = text.partition("%")
    if mark and not (scope.isascii() and scope.isdigit()):
        return None
    try:
        return int(IPv6Address(_LEADING_ZEROS.sub("", text)))
    except ValueError:
        return None


def _network(version: int, address: int, bits: int) -> Network:
    rest = (1 << _WIDTHS[version] - bits) - 1
    return Network(version, address & ~rest, address | rest)


def _address_of(host: str) -> tuple[int, int] | None:
    """Version and number of an address; None: it is none."""
    from ipaddress import ip_address

    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return address.version, int(address)


def host_text(host: str) -> str:
    """An address as Java writes it, which is how rules name it: IPv6 with all its eight numbers."""
    address, mark, scope = host.partition("%")
    if ":" not in address:
        return host
    from ipaddress import IPv6Address

    try:
        words = IPv6Address(address).exploded.split(":")
    except ValueError:
        return host
    return ":".join(f"{int(word, 16):x}" for word in words) + mark + scope


Bits = tuple[int, int]
"""Operations that are denied, and operations that are allowed."""
_NOTHING: Bits = (0, 0)
Grants = dict[tuple[str, str], Bits]
"""By principal and host."""


class _Patterns:
    """The rules for the resources of one type. Changed only while nobody else has it."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, Grants] = {}
        self.prefixed: dict[str, Grants] = {}
        self.lengths: tuple[int, ...] = ()
        """Lengths of the prefixes."""

    def copy(self) -> _Patterns:
        copied = _Patterns()
        copied.literal, copied.prefixed = self.literal.copy(), self.prefixed.copy()
        return copied

    def of(self, pattern_type: PatternType) -> dict[str, Grants]:
        return self.prefixed if pattern_type is PatternType.PREFIXED else self.literal

    def fitting(self, name: str) -> list[tuple[PatternType, str, Grants]]:
        """Patterns that fit the name of a resource."""
        found = []
        for text in {name, WILDCARD}:
            if text in self.literal:
                found.append((PatternType.LITERAL, text, self.literal[text]))
        for length in self.lengths:
            prefix = name[:length]
            if prefix in self.prefixed and len(prefix) == length:
                found.append((PatternType.PREFIXED, prefix, self.prefixed[prefix]))
        return found

    def named(self, name: str, pattern_type: PatternType) -> list[tuple[PatternType, str, Grants]]:
        """Patterns with exactly this name; ANY for both types."""
        return [
            (kind, name, self.of(kind)[name])
            for kind in (PatternType.LITERAL, PatternType.PREFIXED)
            if pattern_type in (PatternType.ANY, kind) and name in self.of(kind)
        ]


class AclRules:
    """See the module."""

    __slots__ = ("_by_id", "_ids", "_networks", "_patterns", "version")

    def __init__(self) -> None:
        self.version = 0
        """Grows with each change."""
        self._by_id: dict[bytes, Acl] = {}
        self._ids: dict[Acl, bytes] = {}
        self._patterns: dict[int, _Patterns] = {}
        self._networks: dict[str, tuple[Network, int]] = {}
        """The hosts of rules that are networks, with the number of their rules. Never changed in place."""

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def by_id(self) -> Mapping[bytes, Acl]:
        return MappingProxyType(self._by_id)

    # Decisions

    def identities(self, principal: str, host: str) -> Identities:
        """The identities of a client; `host` is an address as Java writes it."""
        if not self._networks or (address := _address_of(host)) is None:
            return identities_of(principal, host)
        version, number = address
        networks = [
            text
            for text, (network, _) in self._networks.items()
            if network.version == version and network.first <= number <= network.last
        ]
        return identities_of(principal, host, networks)

    def decide(
        self, who: Identities, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Whether the rules allow it. None: no rule of anybody fits the resource."""
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return None
        literal, denied_by, allowed_by = patterns.literal, _DENIED_BY[operation], _ALLOWED_BY[operation]
        found = [literal[text] for text in (name, WILDCARD) if text in literal]
        for length in patterns.lengths:
            if length > len(name):
                break
            grants = patterns.prefixed.get(name[:length])
            if grants is not None:
                found.append(grants)
        is_allowed = False
        for grants in found:
            for key in who:
                bits = grants.get(key)
                if bits is not None:
                    if bits[0] & denied_by:
                        return False
                    if bits[1] & allowed_by:
                        is_allowed = True
        return is_allowed if found else None

    def denies(self, who: Identities, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Whether a DENY refuses it."""
        patterns = self._patterns.get(resource_type)
        denied_by = _DENIED_BY[operation]
        return patterns is not None and any(
            _bits_of(grants, who)[0] & denied_by for _, _, grants in patterns.fitting(name)
        )

    def decide_any(self, who: Identities, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether they allow it for some resource of this type. No operation implies another one here."""
        patterns = self._patterns.get(resource_type)
        if patterns is None:
            return False
        wanted = _DENIED_BY[operation]
        literal, prefixed = (
            {
                name: _bits_of(grants, who)
                for name, grants in of_kind.items()
                if not grants.keys().isdisjoint(who)
            }
            for of_kind in (patterns.literal, patterns.prefixed)
        )
        denied, allowed = literal.get(WILDCARD, _NOTHING)
        if (denied | allowed) & wanted:
            return not denied & wanted
        denied_prefixes = {name for name, bits in prefixed.items() if bits[0] & wanted}

        def is_below_denied(name: str) -> bool:
            return any(name[:length] in denied_prefixes for length in range(1, len(name) + 1))

        return any(
            bits[1] & wanted and not (of_kind is literal and bits[0] & wanted) and not is_below_denied(name)
            for of_kind in (literal, prefixed)
            for name, bits in of_kind.items()
        )

    # Filters

    def finding(self, wanted: AclFilter) -> Work[list[Acl]]:
        """The rules that fit the filter, sorted."""
        found: list[Acl] = []
        candidates = self._candidates(wanted)
        while step := list(islice(candidates, ACLS_PER_STEP)):
            found += [acl for acl in step if wanted.fits(acl)]
            yield None
        return sorted(found)

    def _candidates(self, wanted: AclFilter) -> Iterator[Acl]:
        if wanted.name is None:
            yield from self._ids
            return
        for kind, patterns in self._patterns.items():
            if wanted.resource_type not in (ResourceType.ANY, kind):
                continue
            if wanted.pattern_type is PatternType.MATCH:
                found = patterns.fitting(wanted.name)
            else:
                found = patterns.named(wanted.name, wanted.pattern_type)
            for pattern_type, name, grants in found:
                for (principal, host), bits in grants.items():
                    for permission, of_permission in zip(_BOTH, bits, strict=True):
                        for operation in _operations(of_permission):
                            yield Acl(
                                member_or_code(ResourceType, kind),
                                name,
                                pattern_type,
                                principal,
                                host,
                                operation,
                                permission,
                            )

    # Changes

    def changed(self, added: Mapping[bytes, Acl], removed: Collection[bytes] = ()) -> AclRules:
        """These rules without `removed` and with `added`. ValueError: there is no such rule, or an equal one
        has another id."""
        after = AclRules()
        after.version = self.version + 1
        after._by_id, after._ids = self._by_id.copy(), self._ids.copy()
        after._patterns = self._patterns.copy()
        editing = _Editing(after._patterns)
        for acl_id in removed:
            acl = after._by_id.pop(acl_id, None)
            if acl is None:
                raise ValueError(f"there is no ACL {acl_id.hex()} to remove")
            del after._ids[acl]
            editing.remove(acl)
        for acl_id, acl in added.items():
            if acl_id in after._by_id or acl in after._ids:
                raise ValueError(f"the ACL {acl_id.hex()} is there already")
            after._by_id[acl_id] = acl
            after._ids[acl] = acl_id
            editing.add(acl)
        editing.end()
        after._networks = _counted(
            self._networks, [acl.host for acl in added.values()], [self._by_id[one].host for one in removed]
        )
        return after

    def replaced(self, by_id: Mapping[bytes, Acl]) -> AclRules:
        """Rules that have nothing but `by_id`, and a higher version."""
        empty = AclRules()
        empty.version = self.version
        return empty.changed(by_id)

    def creating(
        self, wanted: Iterable[Acl | KafkaError], new_id: Callable[[], bytes], *, takes_networks: bool = True
    ) -> Work[tuple[list[KafkaError | None], dict[bytes, Acl]]]:
        """Judge new rules; `takes_networks`: whether their hosts may be networks. Returns the refusals (None:
        it is there then), and what has to be added. A KafkaError among `wanted` is refused with that error.
        Raises KafkaError for too many rules."""
        refusals: list[KafkaError | None] = []
        new: dict[Acl, bytes] = {}
        for acl in wanted:
            try:
                if isinstance(acl, KafkaError):
                    raise acl
                check_acl(acl)
                check_host(acl.host, takes_networks=takes_networks)
            except KafkaError as error:
                refusals.append(error)
            else:
                refusals.append(None)
                if acl not in self._ids and acl not in new:
                    new[acl] = self._unused(new_id)
                    _check_count(len(new))
            if len(refusals) % ACLS_PER_STEP == 0:
                yield None
        return refusals, {acl_id: acl for acl, acl_id in new.items()}

    def deleting(
        self, filters: Iterable[AclFilter]
    ) -> Work[tuple[list[list[Acl] | KafkaError], dict[bytes, Acl]]]:
        """Judge deletions. Returns for each filter the rules that fit, or its refusal; and all rules to be
        removed. Raises KafkaError for too many rules."""
        results: list[list[Acl] | KafkaError] = []
        removed: dict[bytes, Acl] = {}
        named = 0
        for wanted in filters:
            # A filter that finds nothing ends no step of its own.
            if len(results) % ACLS_PER_STEP == ACLS_PER_STEP - 1:
                yield None
            try:
                check_filter(wanted)
            except KafkaError as error:
                results.append(error)
                continue
            fitting = yield from self.finding(wanted)
            removed.update((self._ids[acl], acl) for acl in fitting)
            named += len(fitting)
            _check_count(max(len(removed), named // NAMED_TWICE_MAX))
            results.append(fitting)
        return results, removed

    def _unused(self, new_id: Callable[[], bytes]) -> bytes:
        while (acl_id := new_id()) in self._by_id:
            pass
        return acl_id


class _Editing:
    """Changes patterns, each of which is copied before it is changed for the first time."""

    def __init__(self, patterns: dict[int, _Patterns]) -> None:
        self._patterns = patterns
        self._own: set[int] = set()
        self._own_grants: set[int] = set()
        self._with_other_prefixes: set[int] = set()

    def add(self, acl: Acl) -> None:
        denied, allowed = self._grants(acl).get((acl.principal, acl.host), _NOTHING)
        self._put(acl, denied | _bit(acl, Permission.DENY), allowed | _bit(acl, Permission.ALLOW))

    def remove(self, acl: Acl) -> None:
        denied, allowed = self._grants(acl)[acl.principal, acl.host]
        self._put(acl, denied & ~_bit(acl, Permission.DENY), allowed & ~_bit(acl, Permission.ALLOW))

    def end(self) -> None:
        for kind in self._with_other_prefixes:
            patterns = self._patterns[kind]
            patterns.lengths = tuple(sorted({len(prefix) for prefix in patterns.prefixed}))
        for kind in self._own:
            if not self._patterns[kind].literal and not self._patterns[kind].prefixed:
                del self._patterns[kind]

    def _grants(self, acl: Acl) -> Grants:
        kind = acl.resource_type
        if kind not in self._own:
            self._own.add(kind)
            before = self._patterns.get(kind)
            self._patterns[kind] = _Patterns() if before is None else before.copy()
            self._with_other_prefixes.add(kind)
        of_names = self._patterns[kind].of(acl.pattern_type)
        grants = of_names.get(acl.name)
        if grants is None or id(grants) not in self._own_grants:
            grants = of_names[acl.name] = {} if grants is None else grants.copy()
            self._own_grants.add(id(grants))
        return grants

    def _put(self, acl: Acl, denied: int, allowed: int) -> None:
        grants = self._grants(acl)
        key = acl.principal, acl.host
        if denied or allowed:
            grants[key] = denied, allowed
            return
        grants.pop(key, None)
        if not grants:
            self._own_grants.discard(id(grants))
            del self._patterns[acl.resource_type].of(acl.pattern_type)[acl.name]


_BOTH = (Permission.DENY, Permission.ALLOW)


def _bit(acl: Acl, permission: Permission) -> int:
    return 1 << acl.operation if acl.permission == permission else 0


def _operations(bits: int) -> list[Any]:
    return [member_or_code(Operation, code) for code in range(bits.bit_length()) if bits & 1 << code]


def _bits_of(grants: Grants, who: Identities) -> Bits:
    denied = allowed = 0
    for key in who:
        bits = grants.get(key, _NOTHING)
        denied |= bits[0]
        allowed |= bits[1]
    return denied, allowed


def _counted(
    networks: dict[str, tuple[Network, int]], added: Iterable[str], removed: Iterable[str]
) -> dict[str, tuple[Network, int]]:
    """The networks among the hosts of rules, after these hosts have come and gone."""
    changes = [(host, 1) for host in added if "/" in host] + [(host, -1) for host in removed if "/" in host]
    if not changes:
        return networks
    after = networks.copy()
    for host, change in changes:
        try:
            network, count = after.get(host) or (network_of(host), 0)
        except ValueError:
            continue  # Controllers take only networks; a text that is none fits no address.
        after[host] = network, count + change
    return {host: one for host, one in after.items() if one[1]}


def _check_count(count: int) -> None:
    if count > CHANGES_MAX:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION, f"One request may create or delete {CHANGES_MAX} ACLs at the most."
        )


def check_acl(acl: Acl) -> None:
    """INVALID_REQUEST for a rule that nobody can have."""
    refusal = None
    if acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        refusal = f"There are no ACLs for resources of type {acl.resource_type.name}."
    elif acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        refusal = f"A resource of type CLUSTER is named {CLUSTER_NAME}."
    elif not acl.name:
        refusal = "The name of a resource cannot be empty."
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        refusal = f"An ACL cannot have a pattern of type {acl.pattern_type.name}."
    elif acl.operation in (Operation.UNKNOWN, Operation.ANY):
        refusal = f"There are no ACLs for the operation {acl.operation.name}."
    elif acl.permission not in _BOTH:
        refusal = f"An ACL cannot have the permission {acl.permission.name}."
    elif ":" not in acl.principal:
        refusal = f"The principal {acl.principal!r} has no type: write User:NAME."
    if refusal is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, refusal)


def check_host(host: str, *, takes_networks: bool) -> None:
    """INVALID_REQUEST, UNSUPPORTED_VERSION for the host of a new rule. An older one, which is stored, may be
    empty."""
    if not host:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Host pattern cannot be null or empty")
    if "/" not in host:
        return
    if not takes_networks:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    try:
        network_of(host)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {error}") from None


def check_filter(wanted: AclFilter) -> None:
    """INVALID_REQUEST for a filter with something unknown."""
    for kind in (wanted.resource_type, wanted.pattern_type, wanted.operation, wanted.permission):
        if kind == 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"The filter has an unknown {type(kind).__name__} in it."
            )


def acl_from_text(text: str) -> Acl:
    """ValueError: this is no rule."""
    try:
        resource_type, name, pattern_type, principal, host, operation, permission = json.loads(text)
        acl = Acl(
            ResourceType(resource_type),
            name,
            PatternType(pattern_type),
            principal,
            host,
            Operation(operation),
            Permission(permission),
        )
        if not all(isinstance(one, str) for one in (name, principal, host)):
            raise ValueError("a name is not text")
        check_acl(acl)
    except (KafkaError, TypeError, ValueError) as error:
        raise ValueError(f"{text!r} is not an ACL: {error}") from None
    return acl


class Policy(NamedTuple):
    """Options that decide beside the rules."""

    super_users: frozenset[str] = frozenset()
    """`super.users`: principals that may do everything."""
    allows_without_rules: bool = False
    """`allow.everyone.if.no.acl.found`: what counts where no rule of anybody fits."""

    def allows(
        self,
        rules: AclRules,
        who: Identities,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
    ) -> bool:
        if who[0][0] in self.super_users:
            return True
        decision = rules.decide(who, operation, resource_type, name)
        return self.allows_without_rules if decision is None else decision

    def allows_any(
        self, rules: AclRules, who: Identities, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """For some resource of this type."""
        # Kafka asks for this name, which nobody has, to find out about rules for all names.
        return self.allows(rules, who, operation, resource_type, "hardcode") or rules.decide_any(
            who, operation, resource_type
        )
