-- Version 5: votes for and against an experience, and the rule that set an operation aside.

ALTER TABLE operations ADD COLUMN finding TEXT;  -- confirmed, misled, unclear, too_narrow: what the lesson found of the target; NULL = nothing
ALTER TABLE operations ADD COLUMN rule TEXT;     -- which rule refused or quarantined it; NULL = none did, or an older version's
ALTER TABLE groups ADD COLUMN library_id INTEGER REFERENCES libraries;  -- what its attempts were shown; NULL = the step's library_in
CREATE INDEX operations_target ON operations (target_id) WHERE target_id IS NOT NULL;
CREATE INDEX library_items_text ON library_items (experience_id, version);
