-- Version 3: groups that are played in waves, or left out.

ALTER TABLE steps ADD COLUMN going_on TEXT;  -- JSON [slot, ...]: groups with a second wave; NULL = not decided
ALTER TABLE steps ADD COLUMN left_out TEXT;  -- JSON [slot, ...]: groups that are not played; NULL = not decided
ALTER TABLE rollouts ADD COLUMN wave INTEGER NOT NULL DEFAULT 0 CHECK (wave IN (0, 1));

-- What a step of which every rollout has its reward adds up to, written as it is closed: such rows
-- never change, and pages need not read them. NULL = read the rows.
ALTER TABLE steps ADD COLUMN sums TEXT;

-- What the calls of a step add up to, kept by triggers: pages never read calls.
CREATE TABLE call_sums (
  branch_id     INTEGER NOT NULL REFERENCES branches,
  step          INTEGER NOT NULL,
  invocation_id INTEGER NOT NULL REFERENCES invocations,
  stage         TEXT NOT NULL,
  name          TEXT NOT NULL,
  answered_by   TEXT NOT NULL,
  seeded        INTEGER NOT NULL,
  counted       INTEGER NOT NULL,            -- its tokens are known, in and out
  priced        INTEGER NOT NULL,            -- its cost is known
  calls         INTEGER NOT NULL,
  tries         INTEGER NOT NULL,
  retried       INTEGER NOT NULL,            -- calls with more than one try
  tokens_in     INTEGER, tokens_cached INTEGER, tokens_out INTEGER, tokens_reasoning INTEGER,
  cost_micro    INTEGER,
  most_tokens   INTEGER, most_out INTEGER, most_micro INTEGER, -- of one call
  PRIMARY KEY (branch_id, step, invocation_id, stage, name, answered_by, seeded, counted, priced)
) STRICT, WITHOUT ROWID;

INSERT INTO call_sums
SELECT branch_id, step, invocation_id, stage, name, coalesce(answered_by, ''), seeded,
       tokens_in + tokens_out IS NOT NULL, cost_micro IS NOT NULL, count(*), sum(tries),
       sum(tries > 1), sum(tokens_in), sum(tokens_cached), sum(tokens_out), sum(tokens_reasoning),
       sum(cost_micro), max(tokens_in + tokens_out), max(tokens_out), max(cost_micro)
  FROM calls GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;

CREATE TRIGGER calls_added AFTER INSERT ON calls BEGIN
  INSERT INTO call_sums VALUES (new.branch_id, new.step, new.invocation_id, new.stage, new.name,
    coalesce(new.answered_by, ''), new.seeded, new.tokens_in + new.tokens_out IS NOT NULL,
    new.cost_micro IS NOT NULL, 1, new.tries, new.tries > 1, new.tokens_in, new.tokens_cached,
    new.tokens_out, new.tokens_reasoning, new.cost_micro, new.tokens_in + new.tokens_out,
    new.tokens_out, new.cost_micro)
  ON CONFLICT DO UPDATE SET
    calls = calls + 1, tries = tries + excluded.tries, retried = retried + excluded.retried,
    tokens_in = coalesce(tokens_in + excluded.tokens_in, tokens_in, excluded.tokens_in),
    tokens_cached =
      coalesce(tokens_cached + excluded.tokens_cached, tokens_cached, excluded.tokens_cached),
    tokens_out = coalesce(tokens_out + excluded.tokens_out, tokens_out, excluded.tokens_out),
    tokens_reasoning = coalesce(tokens_reasoning + excluded.tokens_reasoning, tokens_reasoning,
      excluded.tokens_reasoning),
    cost_micro = cost_micro + excluded.cost_micro,
    most_tokens = max(most_tokens, excluded.most_tokens),
    most_out = max(coalesce(most_out, excluded.most_out), coalesce(excluded.most_out, most_out)),
    most_micro = max(most_micro, excluded.most_micro);
END;
-- Calls go with all of their branch; nothing of ours changes one, so that may take its time.
CREATE TRIGGER calls_changed AFTER UPDATE ON calls BEGIN
  DELETE FROM call_sums WHERE branch_id = old.branch_id AND step = old.step;
  INSERT INTO call_sums
  SELECT branch_id, step, invocation_id, stage, name, coalesce(answered_by, ''), seeded,
         tokens_in + tokens_out IS NOT NULL, cost_micro IS NOT NULL, count(*), sum(tries),
         sum(tries > 1), sum(tokens_in), sum(tokens_cached), sum(tokens_out),
         sum(tokens_reasoning), sum(cost_micro), max(tokens_in + tokens_out), max(tokens_out),
         max(cost_micro)
    FROM calls WHERE branch_id = new.branch_id AND step = new.step GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9;
END;
CREATE TRIGGER calls_removed AFTER DELETE ON calls BEGIN
  DELETE FROM call_sums WHERE branch_id = old.branch_id AND step = old.step;
END;

-- Whatever changes a row of a closed step: its sums are gone, and the rows are read.
CREATE TRIGGER rollouts_changed AFTER UPDATE ON rollouts BEGIN
  UPDATE steps SET sums = NULL
   WHERE branch_id = old.branch_id AND step = old.step AND sums IS NOT NULL;
END;
CREATE TRIGGER verdicts_changed AFTER UPDATE ON verdicts BEGIN
  UPDATE steps SET sums = NULL WHERE sums IS NOT NULL AND (branch_id, step) =
    (SELECT branch_id, step FROM rollouts WHERE rollout_id = old.rollout_id);
END;
CREATE TRIGGER verdicts_removed AFTER DELETE ON verdicts BEGIN
  UPDATE steps SET sums = NULL WHERE sums IS NOT NULL AND (branch_id, step) =
    (SELECT branch_id, step FROM rollouts WHERE rollout_id = old.rollout_id);
END;
