-- Version 2: what a call cost by which price list, and whether its seed was sent.

ALTER TABLE calls ADD COLUMN price TEXT;     -- 'config', 'genai-prices 0.2.3'; NULL = unknown
ALTER TABLE calls ADD COLUMN seeded INTEGER NOT NULL DEFAULT 1 CHECK (seeded IN (0, 1));
