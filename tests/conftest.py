"""How hypothesis runs: the same examples every time in the fast tier, new ones every night."""

from hypothesis import settings

from tests.tiers import NIGHTLY

# No deadline for an example: a busy machine is not a failure.
settings.register_profile("fast", deadline=None, derandomize=True)
settings.register_profile("nightly", deadline=None, print_blob=True)
settings.load_profile("nightly" if NIGHTLY else "fast")
