-- Version 7: fences around foreign text in prompts, with codes that nobody outside can compute.

ALTER TABLE branches ADD COLUMN fence_key BLOB CHECK (length(fence_key) = 32); -- secret of the codes, one per run; NULL = codes of 32 bits of the text's own hash, as before
