-- Version 1. Insert-only: calls, call_bodies, verdicts, libraries, library_items, experience_texts,
-- and operations but for `status`. Times are ISO 8601 in UTC, money is micro-dollars.

CREATE TABLE texts (                         -- config YAML, prompt files, verify sources, system prompts
  sha256  BLOB PRIMARY KEY CHECK (length(sha256) = 32),
  body    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE samples (                       -- immutable, content-addressed; never updated or deleted
  sample_id INTEGER PRIMARY KEY,
  sha256    BLOB NOT NULL UNIQUE CHECK (length(sha256) = 32),
  question  TEXT NOT NULL,
  answer    TEXT,                            -- JSON (string, number, bool, alternatives); NULL = none
  source    TEXT NOT NULL DEFAULT '',
  level     TEXT,
  cluster   TEXT,                            -- questions that come in families; NULL = the question itself
  meta      TEXT NOT NULL DEFAULT '{}'
) STRICT;

CREATE TABLE datasets (                      -- one row per upload; --replace makes a new revision
  dataset_id INTEGER PRIMARY KEY,
  name       TEXT NOT NULL,
  revision   INTEGER NOT NULL,
  sha256     BLOB NOT NULL,                  -- over the ordered sample hashes
  n          INTEGER NOT NULL,
  origin     TEXT NOT NULL,
  created_at TEXT NOT NULL,
  hidden_at  TEXT,                           -- `data delete`: the name goes, the rows of old runs stay
  UNIQUE (name, revision)
) STRICT;
CREATE TABLE dataset_rows (
  dataset_id INTEGER NOT NULL REFERENCES datasets,
  position   INTEGER NOT NULL,
  sample_id  INTEGER NOT NULL REFERENCES samples,
  PRIMARY KEY (dataset_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE runs (
  run_id        TEXT PRIMARY KEY,            -- EXP, EXP/eval, EXP/eval/<agent>, EXP/eval/L<sha>, …
  exp_id        TEXT NOT NULL,
  kind          TEXT NOT NULL CHECK (kind IN ('practice','eval','recorded','train')),
  role          TEXT NOT NULL DEFAULT '',    -- '', 'in_run', 'rejudge'
  parent_run_id TEXT REFERENCES runs,
  parent_step   INTEGER,
  head_branch   INTEGER REFERENCES branches, -- the one branch that "is" the run now
  status        TEXT NOT NULL CHECK (status IN ('new','running','paused','stopped','failed','done')),
  simulated     INTEGER NOT NULL DEFAULT 0,
  created_at    TEXT NOT NULL
) STRICT;
CREATE INDEX runs_exp ON runs (exp_id, kind, created_at);
CREATE INDEX runs_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TABLE judges (                        -- a verify function as it was
  judge_id INTEGER PRIMARY KEY,
  sha256   BLOB NOT NULL UNIQUE,
  name     TEXT NOT NULL,
  spec     TEXT NOT NULL,
  source   BLOB REFERENCES texts
) STRICT;

CREATE TABLE branches (                      -- a tree per run
  branch_id     INTEGER PRIMARY KEY,
  run_id        TEXT NOT NULL REFERENCES runs,
  parent_id     INTEGER REFERENCES branches,
  from_step     INTEGER NOT NULL DEFAULT 0,  -- steps < from_step are the parent's
  rebinds       INTEGER REFERENCES branches, -- its calls may be reused: the same work, config changed
  cause         TEXT NOT NULL CHECK (cause IN ('start','restart','edit','redistil','rejudge')),
  library_id    INTEGER REFERENCES libraries,-- library before from_step
  tip_library   INTEGER REFERENCES libraries,-- what `last` means now
  judge_id      INTEGER REFERENCES judges,   -- whose verdicts count on this branch
  identity_sha  BLOB NOT NULL,               -- the fingerprint lives here, not on the run
  identity      TEXT NOT NULL,               -- resolved, redacted JSON: what the diff is made of
  config_sha    BLOB NOT NULL REFERENCES texts,
  prompts       TEXT NOT NULL DEFAULT '{}',  -- JSON {name: hex sha of its text}
  base_dir      TEXT NOT NULL,               -- what relative paths in it are relative to
  dataset_id    INTEGER REFERENCES datasets,
  created_at    TEXT NOT NULL
) STRICT;
CREATE INDEX branches_run ON branches (run_id);

CREATE TABLE invocations (
  invocation_id INTEGER PRIMARY KEY,
  run_id        TEXT NOT NULL REFERENCES runs,
  branch_id     INTEGER REFERENCES branches,
  version       TEXT NOT NULL,
  command       TEXT NOT NULL,               -- redacted
  pid           INTEGER NOT NULL,
  host          TEXT NOT NULL,
  started_at    TEXT NOT NULL,
  ended_at      TEXT,
  exit_code     INTEGER,
  reason        TEXT
) STRICT;
CREATE INDEX invocations_run ON invocations (run_id, invocation_id);

CREATE TABLE steps (
  branch_id   INTEGER NOT NULL REFERENCES branches,
  step        INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  batch       INTEGER NOT NULL,
  plan        TEXT NOT NULL,                 -- JSON [[sample_id, attempts], ...]; index = slot
  played_by   INTEGER REFERENCES branches,   -- whose rollouts; NULL = own
  library_in  INTEGER REFERENCES libraries,
  library_out INTEGER REFERENCES libraries,  -- NULL until closed; = library_in when the merge failed
  status      TEXT NOT NULL CHECK (status IN ('planned','open','closed','merge_failed','stopped')),
  stats       TEXT,                          -- JSON, written when closed: pages never scan rollouts
  closed_at   TEXT,
  PRIMARY KEY (branch_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (
  branch_id   INTEGER NOT NULL,
  step        INTEGER NOT NULL,
  slot        INTEGER NOT NULL,
  sample_id   INTEGER NOT NULL REFERENCES samples,
  planned     INTEGER NOT NULL,
  played      INTEGER NOT NULL,
  scored      INTEGER NOT NULL,
  teachable   INTEGER NOT NULL,
  mean_reward REAL,
  informative INTEGER NOT NULL,
  status      TEXT NOT NULL CHECK (status IN ('scored','distilled','uniform','too_few','failed')),
  reason      TEXT,
  PRIMARY KEY (branch_id, step, slot),
  FOREIGN KEY (branch_id, step) REFERENCES steps
) STRICT, WITHOUT ROWID;
CREATE INDEX groups_sample ON groups (sample_id, branch_id, step);

CREATE TABLE rollouts (                      -- narrow: every list and every statistic reads only this
  rollout_id   INTEGER PRIMARY KEY,
  branch_id    INTEGER NOT NULL,
  step         INTEGER NOT NULL,
  slot         INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  sample_id    INTEGER NOT NULL REFERENCES samples,
  seed         INTEGER NOT NULL,
  library_id   INTEGER REFERENCES libraries,
  system_sha   BLOB REFERENCES texts,        -- the exact system prompt this rollout saw
  outcome      TEXT NOT NULL CHECK (outcome IN ('ok','truncated','refused','content_filter',
                 'context_overflow','limit','empty','error')),
  reason       TEXT,                         -- limit: turns|time|tokens|cost; error: provider|agent|verify|judge|cancelled
  error        TEXT,
  strikes      INTEGER NOT NULL DEFAULT 0,   -- times our own deadline ended it; never raised by a kill
  turns        INTEGER NOT NULL DEFAULT 0,
  tool_calls   INTEGER NOT NULL DEFAULT 0,
  tokens_in    INTEGER, tokens_cached INTEGER, tokens_out INTEGER, tokens_reasoning INTEGER,
  cost_micro   INTEGER,                      -- NULL = unknown
  model_ms     INTEGER NOT NULL DEFAULT 0,
  head         TEXT NOT NULL DEFAULT '',     -- first 160 characters of the response, for lists
  finished_at  TEXT NOT NULL,
  UNIQUE (branch_id, step, slot, attempt),
  FOREIGN KEY (branch_id, step) REFERENCES steps
) STRICT;
CREATE INDEX rollouts_bad ON rollouts (branch_id, step, outcome) WHERE outcome <> 'ok';
CREATE INDEX rollouts_sample ON rollouts (sample_id, branch_id);

CREATE TABLE rollout_bodies (                -- wide: read one at a time
  rollout_id INTEGER PRIMARY KEY REFERENCES rollouts,
  response   TEXT NOT NULL
) STRICT;

CREATE TABLE verdicts (                      -- re-judging adds rows; it never overwrites
  rollout_id INTEGER NOT NULL REFERENCES rollouts,
  judge_id   INTEGER NOT NULL REFERENCES judges,
  reward     REAL CHECK (reward IS NULL OR (reward >= 0.0 AND reward <= 1.0)),
  critique   TEXT,
  extracted  TEXT,
  error      TEXT,
  PRIMARY KEY (rollout_id, judge_id),
  CHECK ((reward IS NULL) = (error IS NOT NULL))
) STRICT, WITHOUT ROWID;

CREATE TABLE calls (                         -- the ledger: insert only
  call_id      INTEGER PRIMARY KEY,
  branch_id    INTEGER NOT NULL REFERENCES branches,
  step         INTEGER NOT NULL,
  slot         INTEGER NOT NULL,             -- -1 where there is no sample (merge)
  attempt      INTEGER NOT NULL,             -- -1 where there is no attempt (compare, propose, merge)
  stage        TEXT NOT NULL,                -- play, tool, judge, summarise, compare, propose, merge
  request_hash BLOB NOT NULL CHECK (length(request_hash) = 16),
  nth          INTEGER NOT NULL DEFAULT 0,   -- which answer to this same request in this scope
  turn         INTEGER NOT NULL,             -- order of first use in the scope; for people
  prev_call_id INTEGER REFERENCES calls,     -- the call whose conversation this one continues
  role         TEXT NOT NULL,                -- student, teacher, judge, tool
  name         TEXT NOT NULL,                -- model or tool name as asked
  answered_by  TEXT,                         -- model name in the reply, and host of the endpoint
  finish       TEXT,
  tokens_in    INTEGER, tokens_cached INTEGER, tokens_out INTEGER, tokens_reasoning INTEGER,
  cost_micro   INTEGER,                      -- NULL = unknown
  tries        INTEGER NOT NULL DEFAULT 1,
  seconds      REAL NOT NULL,
  invocation_id INTEGER NOT NULL REFERENCES invocations,
  created_at   TEXT NOT NULL,
  UNIQUE (branch_id, step, slot, attempt, stage, request_hash, nth)
) STRICT;
CREATE TABLE call_bodies (
  call_id INTEGER PRIMARY KEY REFERENCES calls,
  request BLOB NOT NULL,                     -- canonical JSON of the messages added since prev_call_id
  params  BLOB REFERENCES texts,             -- canonical {model, params, tools}, without the seed
  reply   BLOB NOT NULL,                     -- message verbatim (after redaction)
  codec   INTEGER NOT NULL DEFAULT 0         -- 0 plain, 1 zlib
) STRICT;
CREATE TABLE failures (                      -- requests that gave no usable answer
  failure_id INTEGER PRIMARY KEY,
  invocation_id INTEGER NOT NULL REFERENCES invocations,
  branch_id  INTEGER NOT NULL, step INTEGER NOT NULL, slot INTEGER NOT NULL, attempt INTEGER NOT NULL,
  stage TEXT NOT NULL, kind TEXT NOT NULL, http_status INTEGER, message TEXT NOT NULL,
  tries INTEGER NOT NULL, maybe_paid INTEGER NOT NULL, created_at TEXT NOT NULL
) STRICT;
CREATE INDEX failures_where ON failures (branch_id, step);

CREATE TABLE libraries (                     -- immutable versions; a tree, not a list
  library_id INTEGER PRIMARY KEY,
  run_id     TEXT NOT NULL REFERENCES runs,
  branch_id  INTEGER REFERENCES branches,
  step       INTEGER,                        -- the step that made it; NULL for empty, import, edit, …
  parent_id  INTEGER REFERENCES libraries,
  cause      TEXT NOT NULL CHECK (cause IN ('empty','import','merge','rejected','edit','approve',
               'revert','prune')),
  sha256     BLOB NOT NULL,                  -- of the rendered block, so equal text is equal
  n          INTEGER NOT NULL,
  next_label INTEGER NOT NULL,               -- 1 + the largest label ever given along this line
  created_at TEXT NOT NULL
) STRICT;
CREATE INDEX libraries_run ON libraries (run_id, branch_id, step);

CREATE TABLE experiences (                   -- identity; never reused within a run
  experience_id INTEGER PRIMARY KEY,
  run_id        TEXT NOT NULL REFERENCES runs,
  label         INTEGER NOT NULL,            -- 12 = "E12"; unique along one line of descent
  born_in       INTEGER NOT NULL REFERENCES libraries,
  origin_id     INTEGER REFERENCES experiences -- imported from another run
) STRICT;
CREATE TABLE experience_texts (
  experience_id INTEGER NOT NULL REFERENCES experiences,
  version       INTEGER NOT NULL,
  text          TEXT NOT NULL,
  op_id         INTEGER REFERENCES operations,
  PRIMARY KEY (experience_id, version)
) STRICT, WITHOUT ROWID;
CREATE TABLE library_items (
  library_id    INTEGER NOT NULL REFERENCES libraries,
  position      INTEGER NOT NULL,
  experience_id INTEGER NOT NULL,
  version       INTEGER NOT NULL,
  PRIMARY KEY (library_id, position),
  UNIQUE (library_id, experience_id),
  FOREIGN KEY (experience_id, version) REFERENCES experience_texts
) STRICT, WITHOUT ROWID;

CREATE TABLE lessons (
  lesson_id INTEGER PRIMARY KEY,
  branch_id INTEGER NOT NULL, step INTEGER NOT NULL, slot INTEGER NOT NULL, ordinal INTEGER NOT NULL,
  text      TEXT NOT NULL,
  call_id   INTEGER NOT NULL REFERENCES calls,
  UNIQUE (branch_id, step, slot, ordinal)
) STRICT;
CREATE TABLE operations (
  op_id      INTEGER PRIMARY KEY,
  branch_id  INTEGER NOT NULL REFERENCES branches,
  step       INTEGER,
  slot       INTEGER NOT NULL DEFAULT -1,    -- -1 = merged
  ordinal    INTEGER NOT NULL,
  source     TEXT NOT NULL CHECK (source IN ('propose','merge','human','prune')),
  op         TEXT NOT NULL CHECK (op IN ('ADD','UPDATE','DELETE','NONE')),
  target_id  INTEGER REFERENCES experiences,
  text       TEXT,
  status     TEXT NOT NULL CHECK (status IN ('proposed','applied','refused','quarantined','rejected')),
  reason     TEXT,
  from_ops   TEXT NOT NULL DEFAULT '[]',     -- JSON op_ids a merged operation stands for
  result_id  INTEGER REFERENCES experiences,
  library_id INTEGER REFERENCES libraries,   -- the version it went into
  call_id    INTEGER REFERENCES calls
) STRICT;
CREATE INDEX operations_step ON operations (branch_id, step);
CREATE INDEX operations_result ON operations (result_id) WHERE result_id IS NOT NULL;

-- which branch holds step s of a run now
CREATE VIEW v_line AS
WITH RECURSIVE up(run_id, branch_id, parent_id, lo, hi) AS (
  SELECT r.run_id, b.branch_id, b.parent_id, b.from_step, 1 << 30
    FROM runs r JOIN branches b ON b.branch_id = r.head_branch
  UNION ALL
  SELECT up.run_id, b.branch_id, b.parent_id, min(b.from_step, up.lo), up.lo
    FROM up JOIN branches b ON b.branch_id = up.parent_id
)
SELECT run_id, branch_id, lo AS from_step, hi AS to_step FROM up WHERE lo < hi;

CREATE VIEW v_steps AS
SELECT l.run_id, s.* FROM v_line l
  JOIN steps s ON s.branch_id = l.branch_id AND s.step >= l.from_step AND s.step < l.to_step;

CREATE VIEW v_rollouts AS                    -- one row per rollout, with the verdict that counts;
                                             -- +s.step: else each step would read all rollouts
SELECT l.run_id, r.*, v.reward, v.critique, v.extracted, j.name AS verify
  FROM v_line l
  JOIN branches b ON b.branch_id = l.branch_id
  JOIN steps s ON s.branch_id = l.branch_id AND s.step >= l.from_step AND s.step < l.to_step
  JOIN rollouts r ON r.branch_id = coalesce(s.played_by, s.branch_id) AND r.step = +s.step
  LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.judge_id = b.judge_id
  LEFT JOIN judges j ON j.judge_id = v.judge_id;

CREATE VIEW v_costs AS                       -- by the run that asked, all branches: spent is spent
SELECT b.run_id, c.step, c.stage, c.role, c.name, count(*) AS calls, sum(c.tokens_in) AS tokens_in,
       sum(c.tokens_out) AS tokens_out, sum(c.cost_micro) / 1e6 AS usd,
       sum(c.cost_micro IS NULL) AS unpriced
  FROM calls c JOIN invocations b USING (invocation_id) GROUP BY 1, 2, 3, 4, 5;

CREATE VIEW v_experiences AS
SELECT e.run_id, 'E' || e.label AS id, e.experience_id, i.library_id, i.position, t.version, t.text
  FROM library_items i JOIN experiences e USING (experience_id)
  JOIN experience_texts t ON t.experience_id = i.experience_id AND t.version = i.version;
