-- Version 9: rollouts that were shown a part of a library, to measure its experiences.

ALTER TABLE rollouts ADD COLUMN left_out TEXT; -- JSON list of the labels of `library_id` that were not shown (["E12"]); NULL = none
