"""Read datasets from files.

The pipeline has four stages: `text_lines` decodes bytes into text, `formats` parses text into
rows, `row_layout` turns rows into samples, and `read` handles a whole file. `row_layout` uses
`published_shapes` for known dataset formats, `question_template` to lay out questions, and
`choice_options` and `golds` for multiple-choice answers. `split` divides samples into parts.
"""
