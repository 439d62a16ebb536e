-- Version 11: training runs: what each update of the weights did, and where checkpoints are.

CREATE TABLE updates (
  branch_id     INTEGER NOT NULL,
  step          INTEGER NOT NULL,
  inner         INTEGER NOT NULL,            -- 0 to update_epochs - 1
  loss          REAL NOT NULL,
  learning_rate REAL NOT NULL,
  grad_norm     REAL NOT NULL,               -- before it was clipped
  entropy       REAL,
  kl            REAL,                        -- NULL where beta is 0
  clip_low      REAL,                        -- share of the tokens
  clip_high     REAL,
  uniform_share REAL NOT NULL,               -- share of the groups with equal rewards
  tokens        INTEGER NOT NULL,
  seconds       REAL NOT NULL,
  PRIMARY KEY (branch_id, step, inner),
  FOREIGN KEY (branch_id, step) REFERENCES steps
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
  branch_id INTEGER NOT NULL,
  step      INTEGER NOT NULL,                -- the last step that is in it
  path      TEXT NOT NULL,                   -- relative to the database's folder, where it lies below
  sha256    BLOB NOT NULL CHECK (length(sha256) = 32), -- of the weights
  bytes     INTEGER NOT NULL,                -- of the weights
  made_at   TEXT NOT NULL,
  PRIMARY KEY (branch_id, step),
  FOREIGN KEY (branch_id, step) REFERENCES steps
) STRICT, WITHOUT ROWID;
