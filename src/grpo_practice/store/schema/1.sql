-- Times are ISO 8601 in UTC, money is micro-dollars. Rows of calls, call_bodies, verdicts, libraries,
-- library_items and experience_texts are never updated; of operations, only `status` is.

-- Texts and samples: content-addressed, so that what many rows share is stored once.

CREATE TABLE texts (                         -- configs, prompt files, verify sources, system prompts
  sha256  BLOB PRIMARY KEY CHECK (length(sha256) = 32),
  body    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE samples (                       -- immutable, content-addressed; never updated or deleted
  sample_id INTEGER PRIMARY KEY,
  sha256    BLOB NOT NULL UNIQUE CHECK (length(sha256) = 32),
  question  TEXT NOT NULL,
  answer    TEXT,                            -- JSON: string, number, bool, alternatives; NULL = none
  source    TEXT NOT NULL DEFAULT '',
  level     TEXT,
  cluster   TEXT,                            -- family of related questions; NULL = it stands alone
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
  hidden_at  TEXT,                           -- when `data delete` freed its name; runs keep its rows
  UNIQUE (name, revision)
) STRICT;
CREATE TABLE dataset_rows (
  dataset_id INTEGER NOT NULL REFERENCES datasets,
  position   INTEGER NOT NULL,
  sample_id  INTEGER NOT NULL REFERENCES samples,
  PRIMARY KEY (dataset_id, position)
) STRICT, WITHOUT ROWID;

-- Runs: each has a tree of branches, and the steps of a branch.

CREATE TABLE runs (
  run_id        TEXT PRIMARY KEY,            -- its name: EXP, EXP/eval, EXP/eval/L<sha>, …
  exp_id        TEXT NOT NULL,
  kind          TEXT NOT NULL CHECK (kind IN ('practice','eval','recorded','train')),
  -- test: measures an agent; select: chooses among libraries or weights; effect: shows each rollout
  -- half of a library; rejudge: scores the rollouts of another run; trial: training of a search.
  purpose       TEXT NOT NULL CHECK (purpose IN
                  ('practice','test','select','effect','rejudge','train','trial','recorded')),
  parent_run_id TEXT REFERENCES runs,
  parent_step   INTEGER,
  head_branch   INTEGER REFERENCES branches, -- the run as it is now
  status        TEXT NOT NULL CHECK (status IN ('new','running','paused','stopped','failed','done')),
  simulated     INTEGER NOT NULL DEFAULT 0,
  created_at    TEXT NOT NULL,
  imported      INTEGER,                     -- newest invocation at its import; NULL = it began here
  -- Labels of people.
  arm           TEXT,                        -- agent or library as typed; NULL = none was typed
  arm_change    TEXT,                        -- difference from the arm before it; NULL = none
  tags          TEXT NOT NULL DEFAULT '',    -- words, separated by spaces
  note          TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX runs_exp ON runs (exp_id, kind, created_at);
CREATE INDEX runs_parent ON runs (parent_run_id) WHERE parent_run_id IS NOT NULL;

CREATE TABLE verifiers (                     -- a version of a verify function
  verifier_id INTEGER PRIMARY KEY,
  sha256      BLOB NOT NULL UNIQUE,
  name        TEXT NOT NULL,
  spec        TEXT NOT NULL,
  source      BLOB REFERENCES texts
) STRICT;

CREATE TABLE branches (                      -- a configuration of a run, from a step on
  branch_id     INTEGER PRIMARY KEY,
  run_id        TEXT NOT NULL REFERENCES runs,
  parent_id     INTEGER REFERENCES branches,
  from_step     INTEGER NOT NULL DEFAULT 0,  -- earlier steps are the parent's
  rebinds       INTEGER REFERENCES branches, -- branch whose calls this one may reuse
  cause         TEXT NOT NULL CHECK (cause IN ('start','restart','rejudge')),
  library_id    INTEGER REFERENCES libraries, -- library before from_step
  tip_library   INTEGER REFERENCES libraries, -- newest library: `last`
  verifier_id   INTEGER REFERENCES verifiers, -- the one whose verdicts count on this branch
  identity      TEXT NOT NULL,               -- JSON of the redacted keys that the branch is bound to
  config_sha    BLOB NOT NULL REFERENCES texts,
  prompts       TEXT NOT NULL DEFAULT '{}',  -- JSON {name: hex sha of its text}
  fence_key     BLOB NOT NULL CHECK (length(fence_key) = 32), -- secret of the fences in prompts
  base_dir      TEXT NOT NULL,               -- folder of relative paths in the config
  dataset_id    INTEGER REFERENCES datasets,
  k             INTEGER,                     -- attempts at a question; NULL = recorded
  seed          INTEGER,                     -- of an evaluation, or of those of a practice run
  -- Who plays. Two branches with the same agent and prompt play alike, whatever their runs' names.
  model         TEXT,                        -- NULL = an own agent that names none
  agent_sha     BLOB,                        -- settings without instructions; NULL = recorded
  weights_sha   BLOB,                        -- trained weights that are asked; NULL = none
  library_sha   BLOB,                        -- of an evaluation, also within instructions; NULL = none
  prompt_sha    BLOB,                        -- the one system prompt of an evaluation; NULL = several
  -- What a practice run is tested on, as configured.
  test_dataset  TEXT,                        -- name or file; NULL = not configured
  test_k        INTEGER,
  test_limit    INTEGER,                     -- most questions on the way; NULL = all
  created_at    TEXT NOT NULL
) STRICT;
CREATE INDEX branches_run ON branches (run_id);
CREATE INDEX branches_played ON branches (prompt_sha, agent_sha) WHERE prompt_sha IS NOT NULL;

CREATE TABLE invocations (                   -- a process that works on a run
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
  reason        TEXT,
  -- Salted hashes of the endpoints' URLs, headers and query; NULL = unknown.
  student_at    BLOB,
  judge_at      BLOB
) STRICT;
CREATE INDEX invocations_run ON invocations (run_id, invocation_id);

CREATE TABLE address_salt (                  -- one row, the salt of student_at and judge_at
  salt BLOB NOT NULL CHECK (length(salt) = 16)
) STRICT;
INSERT INTO address_salt VALUES (randomblob(16));

CREATE TABLE steps (
  branch_id   INTEGER NOT NULL REFERENCES branches,
  step        INTEGER NOT NULL,
  epoch       INTEGER NOT NULL,
  batch       INTEGER NOT NULL,
  plan        TEXT NOT NULL,                 -- JSON [[sample_id, attempts], ...]; index = slot
  played_by   INTEGER REFERENCES branches,   -- branch that has the rollouts; NULL = this one
  library_in  INTEGER REFERENCES libraries,
  library_out INTEGER REFERENCES libraries,  -- NULL until closed; library_in if the merge failed
  status      TEXT NOT NULL CHECK (status IN ('planned','open','closed','merge_failed','stopped')),
  stats       TEXT,                          -- JSON, written when closed
  sums        TEXT,                          -- JSON totals if every rollout has its reward; NULL = none
  -- 1 = the merge failed because its request got no answer.
  unanswered  INTEGER NOT NULL DEFAULT 0 CHECK (unanswered IN (0, 1)),
  closed_at   TEXT,
  PRIMARY KEY (branch_id, step)
) STRICT, WITHOUT ROWID;

CREATE TABLE groups (                        -- the rollouts of one sample in one step
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
  -- 1 = it failed because a request of the teacher's got no answer.
  unanswered  INTEGER NOT NULL DEFAULT 0 CHECK (unanswered IN (0, 1)),
  library_id  INTEGER REFERENCES libraries,  -- what it was shown; NULL = the step's library_in
  parts       TEXT,                          -- JSON [[labels left out, mean reward, scored], ...]
  PRIMARY KEY (branch_id, step, slot),
  FOREIGN KEY (branch_id, step) REFERENCES steps
) STRICT, WITHOUT ROWID;
CREATE INDEX groups_sample ON groups (sample_id, branch_id, step);

-- Rollouts: what lists and statistics read, apart from the long texts.

CREATE TABLE rollouts (
  rollout_id   INTEGER PRIMARY KEY,
  branch_id    INTEGER NOT NULL,
  step         INTEGER NOT NULL,
  slot         INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  sample_id    INTEGER NOT NULL REFERENCES samples,
  seed         INTEGER NOT NULL,
  library_id   INTEGER REFERENCES libraries,
  left_out     TEXT,                         -- JSON list of labels not shown; NULL = none
  system_sha   BLOB REFERENCES texts,        -- the exact system prompt
  outcome      TEXT NOT NULL CHECK (outcome IN ('ok','truncated','refused','content_filter',
                 'context_overflow','limit','empty','error')),
  -- limit: turns, time, tokens, cost; error: provider, agent, verify, judge, cancelled.
  reason       TEXT,
  error        TEXT,
  strikes      INTEGER NOT NULL DEFAULT 0,   -- how often a deadline ended it, without kills
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
-- In the order of a page of failed rollouts.
CREATE INDEX rollouts_failed ON rollouts (branch_id, step, slot, attempt) WHERE outcome <> 'ok';
CREATE INDEX rollouts_sample ON rollouts (sample_id, branch_id);

CREATE TABLE rollout_bodies (
  rollout_id INTEGER PRIMARY KEY REFERENCES rollouts,
  response   TEXT NOT NULL,
  messages   TEXT                            -- JSON of those before a recorded response; NULL = calls have them
) STRICT;

CREATE TABLE verdicts (                      -- scoring again with another verifier adds rows
  rollout_id  INTEGER NOT NULL REFERENCES rollouts,
  verifier_id INTEGER NOT NULL REFERENCES verifiers,
  reward      REAL CHECK (reward IS NULL OR (reward >= 0.0 AND reward <= 1.0)),
  critique    TEXT,
  extracted   TEXT,
  reason      TEXT,                          -- verify, judge: what failed; NULL = there is a reward
  error       TEXT,
  PRIMARY KEY (rollout_id, verifier_id),
  CHECK ((reward IS NULL) = (error IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- A changed row of a closed step makes its sums wrong: without them, the rows are read.
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

-- The ledger: every paid answer, and every request that got no usable one.

CREATE TABLE calls (
  call_id      INTEGER PRIMARY KEY,
  branch_id    INTEGER NOT NULL REFERENCES branches,
  step         INTEGER NOT NULL,
  slot         INTEGER NOT NULL,             -- -1 without a sample (merge)
  attempt      INTEGER NOT NULL,             -- -1 without an attempt (compare, propose, merge)
  stage        TEXT NOT NULL,                -- play, tool, judge, summarise, compare, propose, merge
  request_hash BLOB NOT NULL CHECK (length(request_hash) = 16),
  seeded       INTEGER NOT NULL DEFAULT 1 CHECK (seeded IN (0, 1)), -- 1 = its seed was sent
  nth          INTEGER NOT NULL DEFAULT 0,   -- number of this answer to the same request in its place
  turn         INTEGER NOT NULL,             -- order of first use in its place, for people
  prev_call_id INTEGER REFERENCES calls,     -- the call whose conversation this one continues
  role         TEXT NOT NULL,                -- student, teacher, judge, tool
  name         TEXT NOT NULL,                -- model or tool as asked
  answered_by  TEXT,                         -- model name in the reply, and host of the endpoint
  finish       TEXT,
  tokens_in    INTEGER, tokens_cached INTEGER, tokens_out INTEGER, tokens_reasoning INTEGER,
  cost_micro   INTEGER,                      -- NULL = unknown
  price        TEXT,                         -- 'config', 'genai-prices 0.2.3'; NULL = unknown
  tries        INTEGER NOT NULL DEFAULT 1,
  seconds      REAL NOT NULL,
  waited_s     REAL NOT NULL DEFAULT 0,      -- seconds of these before a stream began; 0 = unknown
  invocation_id INTEGER NOT NULL REFERENCES invocations,
  created_at   TEXT NOT NULL,
  UNIQUE (branch_id, step, slot, attempt, stage, request_hash, nth)
) STRICT;
CREATE TABLE call_bodies (
  call_id INTEGER PRIMARY KEY REFERENCES calls,
  request BLOB NOT NULL,                     -- canonical JSON of the messages since prev_call_id
  params  BLOB REFERENCES texts,             -- canonical {model, params, tools}, without the seed
  reply   BLOB NOT NULL,                     -- message verbatim, after redaction
  codec   INTEGER NOT NULL DEFAULT 0         -- 0 plain, 1 zlib
) STRICT;
-- Totals of the calls of each step, kept by triggers, so that pages need not read calls.
CREATE TABLE call_sums (
  branch_id     INTEGER NOT NULL REFERENCES branches,
  step          INTEGER NOT NULL,
  invocation_id INTEGER NOT NULL REFERENCES invocations,
  stage         TEXT NOT NULL,
  name          TEXT NOT NULL,
  answered_by   TEXT NOT NULL,
  seeded        INTEGER NOT NULL,
  counted       INTEGER NOT NULL,            -- tokens are known, in and out
  priced        INTEGER NOT NULL,            -- cost is known
  calls         INTEGER NOT NULL,
  tries         INTEGER NOT NULL,
  retried       INTEGER NOT NULL,            -- calls with more than one try
  tokens_in     INTEGER, tokens_cached INTEGER, tokens_out INTEGER, tokens_reasoning INTEGER,
  cost_micro    INTEGER,
  most_tokens   INTEGER, most_out INTEGER, most_micro INTEGER, -- of one call
  PRIMARY KEY (branch_id, step, invocation_id, stage, name, answered_by, seeded, counted, priced)
) STRICT, WITHOUT ROWID;

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
-- This program changes no call, and deletes calls only with their branch, so these may be slow.
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


CREATE TABLE failures (                      -- requests that gave no usable answer
  failure_id    INTEGER PRIMARY KEY,
  invocation_id INTEGER NOT NULL REFERENCES invocations,
  branch_id     INTEGER NOT NULL,
  step          INTEGER NOT NULL,
  slot          INTEGER NOT NULL,
  attempt       INTEGER NOT NULL,
  stage         TEXT NOT NULL,
  kind          TEXT NOT NULL,
  broken        TEXT,                        -- tls, proxy, connect, cut, deadline; NULL = HTTP
  http_status   INTEGER,
  message       TEXT NOT NULL,
  tries         INTEGER NOT NULL,
  maybe_paid    INTEGER NOT NULL,
  created_at    TEXT NOT NULL
) STRICT;
CREATE INDEX failures_where ON failures (branch_id, step);

CREATE TABLE batches (                       -- of requests that an endpoint answers within a day
  batch_id   INTEGER PRIMARY KEY,
  model      TEXT NOT NULL,
  url        TEXT NOT NULL,                  -- base URL without a login
  file_id    TEXT,                           -- the endpoint's names; NULL = not known to exist
  remote_id  TEXT,
  status     TEXT,                           -- completed, failed, expired, cancelled; NULL = not ended
  created_at TEXT NOT NULL,
  ended_at   TEXT
) STRICT;
CREATE TABLE batch_calls (                   -- their places in the ledger
  batch_id     INTEGER NOT NULL REFERENCES batches,
  branch_id    INTEGER NOT NULL REFERENCES branches,
  step         INTEGER NOT NULL,
  slot         INTEGER NOT NULL,
  attempt      INTEGER NOT NULL,
  stage        TEXT NOT NULL,
  request_hash BLOB NOT NULL CHECK (length(request_hash) = 16),
  nth          INTEGER NOT NULL,
  PRIMARY KEY (batch_id, branch_id, step, slot, attempt, stage, request_hash, nth)
) STRICT, WITHOUT ROWID;
CREATE INDEX batch_calls_of ON batch_calls (branch_id);

-- Libraries of experiences, and what changed them.

CREATE TABLE libraries (                     -- immutable versions, in a tree
  library_id INTEGER PRIMARY KEY,
  run_id     TEXT NOT NULL REFERENCES runs,
  branch_id  INTEGER REFERENCES branches,
  step       INTEGER,                        -- the step that made it; NULL = no step did
  parent_id  INTEGER REFERENCES libraries,
  cause      TEXT NOT NULL CHECK (cause IN ('empty','import','merge','edit','approve','prune')),
  sha256     BLOB NOT NULL,                  -- of the rendered block: equal for equal texts
  n          INTEGER NOT NULL,
  next_label INTEGER NOT NULL,               -- 1 + the largest label ever given on its line of descent
  created_at TEXT NOT NULL
) STRICT;
CREATE INDEX libraries_run ON libraries (run_id, branch_id, step);

CREATE TABLE experiences (
  experience_id INTEGER PRIMARY KEY,
  run_id        TEXT NOT NULL REFERENCES runs,
  label         INTEGER NOT NULL,            -- 12 is E12; unique on a line of descent
  born_in       INTEGER NOT NULL REFERENCES libraries,
  origin_id     INTEGER REFERENCES experiences -- the other run's, if it was imported
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
CREATE INDEX library_items_text ON library_items (experience_id, version);

CREATE TABLE lessons (
  lesson_id INTEGER PRIMARY KEY,
  branch_id INTEGER NOT NULL,
  step      INTEGER NOT NULL,
  slot      INTEGER NOT NULL,
  ordinal   INTEGER NOT NULL,
  text      TEXT NOT NULL,
  call_id   INTEGER NOT NULL REFERENCES calls,
  UNIQUE (branch_id, step, slot, ordinal)
) STRICT;
CREATE TABLE operations (
  op_id      INTEGER PRIMARY KEY,
  branch_id  INTEGER NOT NULL REFERENCES branches,
  step       INTEGER,
  slot       INTEGER NOT NULL DEFAULT -1,    -- -1 = of the merge
  ordinal    INTEGER NOT NULL,
  source     TEXT NOT NULL CHECK (source IN ('propose','merge','human','prune')),
  op         TEXT NOT NULL CHECK (op IN ('ADD','UPDATE','DELETE','NONE')),
  target_id  INTEGER REFERENCES experiences,
  text       TEXT,
  status     TEXT NOT NULL CHECK (status IN ('proposed','applied','refused','quarantined','rejected')),
  reason     TEXT,
  -- What the lesson found of the target: confirmed, misled, unclear, too_narrow.
  finding    TEXT,
  rule       TEXT,                           -- the rule that refused or quarantined it
  disproved  INTEGER NOT NULL DEFAULT 0,     -- 1 = rewards fell with the text that it removes
  domains    TEXT NOT NULL DEFAULT '[]',     -- JSON list of the web sites that its group had read
  decides    INTEGER REFERENCES operations,  -- held operation that a person decided on
  from_ops   TEXT NOT NULL DEFAULT '[]',     -- JSON op_ids that a merged operation stands for
  result_id  INTEGER REFERENCES experiences,
  library_id INTEGER REFERENCES libraries,   -- the version it entered
  call_id    INTEGER REFERENCES calls
) STRICT;
CREATE INDEX operations_step ON operations (branch_id, step);
CREATE INDEX operations_result ON operations (result_id) WHERE result_id IS NOT NULL;
CREATE INDEX operations_target ON operations (target_id) WHERE target_id IS NOT NULL;
CREATE INDEX operations_decides ON operations (decides) WHERE decides IS NOT NULL;
CREATE INDEX operations_held ON operations (branch_id, step) WHERE rule = 'held';

-- Training of weights.

CREATE TABLE updates (                       -- of the weights
  branch_id     INTEGER NOT NULL,
  step          INTEGER NOT NULL,
  inner         INTEGER NOT NULL,            -- 0 to update_epochs - 1
  loss          REAL NOT NULL,
  learning_rate REAL NOT NULL,
  grad_norm     REAL NOT NULL,               -- before clipping
  entropy       REAL,
  kl            REAL,                        -- NULL if beta is 0
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
  path      TEXT NOT NULL,                   -- relative to the database's folder if below it
  sha256    BLOB NOT NULL CHECK (length(sha256) = 32), -- of the weights
  bytes     INTEGER NOT NULL,                -- of the weights
  made_at   TEXT NOT NULL,
  PRIMARY KEY (branch_id, step),
  FOREIGN KEY (branch_id, step) REFERENCES steps
) STRICT, WITHOUT ROWID;

-- Views: a run's line is the branches from its head up, each with the steps that it holds.

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

-- One row per rollout, with the verdict that counts. Without the + of `+s.step`, each step would read
-- all rollouts.
CREATE VIEW v_rollouts AS
SELECT l.run_id, r.*, v.reward, v.critique, v.extracted, f.name AS verify
  FROM v_line l
  JOIN branches b ON b.branch_id = l.branch_id
  JOIN steps s ON s.branch_id = l.branch_id AND s.step >= l.from_step AND s.step < l.to_step
  JOIN rollouts r ON r.branch_id = coalesce(s.played_by, s.branch_id) AND r.step = +s.step
  LEFT JOIN verdicts v ON v.rollout_id = r.rollout_id AND v.verifier_id = b.verifier_id
  LEFT JOIN verifiers f ON f.verifier_id = v.verifier_id;

-- Costs of a run, on all branches, also those that a restart has left.
CREATE VIEW v_costs AS
SELECT b.run_id, c.step, c.stage, c.role, c.name, count(*) AS calls, sum(c.tokens_in) AS tokens_in,
       sum(c.tokens_out) AS tokens_out, sum(c.cost_micro) / 1e6 AS usd,
       sum(c.cost_micro IS NULL) AS unpriced
  FROM calls c JOIN invocations b USING (invocation_id) GROUP BY 1, 2, 3, 4, 5;

CREATE VIEW v_experiences AS
SELECT e.run_id, 'E' || e.label AS id, e.experience_id, i.library_id, i.position, t.version, t.text
  FROM library_items i JOIN experiences e USING (experience_id)
  JOIN experience_texts t ON t.experience_id = i.experience_id AND t.version = i.version;
