-- Version 8: experiences that wait for a person's approval.

ALTER TABLE operations ADD COLUMN decides INTEGER REFERENCES operations; -- source human: the held operation that was applied, rejected, or approved for when the open step has closed (proposed); NULL = any other
CREATE INDEX operations_decides ON operations (decides) WHERE decides IS NOT NULL;
CREATE INDEX operations_held ON operations (branch_id, step) WHERE rule = 'held';
