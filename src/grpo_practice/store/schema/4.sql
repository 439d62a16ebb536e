-- Version 4: which web sites an operation's groups had read.

ALTER TABLE operations ADD COLUMN domains TEXT NOT NULL DEFAULT '[]';   -- JSON list of texts
