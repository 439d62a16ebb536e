"""How hard the properties are tried: `HYPOTHESIS_PROFILE=thorough` tries a hundred times harder.

Quick, each run tries the same examples, so what fails has changed; thorough, ever new ones.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "quick",
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "thorough", settings.get_profile("quick"), max_examples=6_000, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "quick"))
