-- Version 12: where the answers of an invocation come from.

CREATE TABLE address_salt (salt BLOB NOT NULL CHECK (length(salt) = 16)) STRICT; -- one row
INSERT INTO address_salt VALUES (randomblob(16));

-- Hashes of URLs, headers and query together, slow to try guesses of a short header on; NULL = unknown.
ALTER TABLE invocations ADD COLUMN student_at BLOB;
ALTER TABLE invocations ADD COLUMN judge_at BLOB;
