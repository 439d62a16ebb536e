-- Version 10: rollouts that did not end well, in the order of a page of them.

-- SQLite passed `rollouts_bad` over: it held no order that a list has.
DROP INDEX rollouts_bad;
CREATE INDEX rollouts_failed ON rollouts (branch_id, step, slot, attempt) WHERE outcome <> 'ok';
