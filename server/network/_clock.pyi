"""The time of one broker."""

from collections.abc import Callable

class Clock:
    """The time of one broker. It is that of the system until a test moves or stops it: whatever has a
    time-out by its options, or writes a time, asks this one. Waits of clients for a response, and what is
    measured, are by the system's clock.
    """

    @property
    def is_frozen(self) -> bool:
        """Whether time stands still, apart from `move`."""
    def __init__(self, source: Callable[[], int] | None = None) -> None:
        """`source` replaces the wall clock of the system: milliseconds since 1970."""
    def now_ms(self) -> int:
        """The wall clock: milliseconds since 1970. It jumps when the system's is set."""
    def monotonic_ms(self) -> int:
        """For intervals: it never jumps, save by `move`, and says nothing about the time of day."""
    def monotonic_ns(self) -> int:
        """The same in nanoseconds."""
    def move(self, by_ns: int) -> None:
        """Move both clocks, also while it is frozen."""
    def freeze(self) -> None:
        """Stop; harmless a second time."""
    def unfreeze(self) -> None:
        """Go on from the present time, without a jump; harmless when it goes."""
    def reset(self) -> None:
        """Be the system's again, whatever was moved or stopped: it may jump backwards."""
