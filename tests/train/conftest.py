"""Settings of the tests of training."""

import os
from importlib.util import find_spec

if find_spec("trl"):  # read when these libraries are imported, which tests elsewhere do otherwise
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
