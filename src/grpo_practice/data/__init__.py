"""Datasets from files.

Bytes become text (`text_lines`), text rows (`formats`), rows samples (`row_layout`, which knows
`published_shapes`, lays questions out with a `question_template`, and reads answers among
`choice_options` with `golds`), and files samples (`read`); `split` divides samples.
"""

from grpo_practice.data.formats import FileSource
from grpo_practice.data.read import ReadResult, read_samples

__all__ = ["FileSource", "ReadResult", "read_samples"]
