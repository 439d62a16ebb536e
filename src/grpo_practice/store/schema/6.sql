-- Version 6: kinds that were read out of sentences are values.
--
-- The sentences below are those of versions 1 to 5, which stored nothing else. This file is the one
-- place that reads a kind out of a text, once, for rows of these versions: leave it as it is when a
-- message is reworded.

ALTER TABLE failures ADD COLUMN broken TEXT; -- tls, proxy, connect, cut, deadline; NULL = an HTTP answer
UPDATE failures SET broken = CASE
    WHEN message LIKE 'the connection broke%' THEN 'cut'
    WHEN message LIKE 'no complete answer in time%' THEN 'deadline'
    WHEN message LIKE 'cannot reach%' THEN 'connect'
    WHEN message LIKE 'the proxy lets nothing through%' THEN 'proxy'
    WHEN message LIKE 'no secure connection%' THEN 'tls' END
  WHERE kind IN ('provider', 'endpoint');

-- 1 = it taught nothing, or nothing was merged, because a request got no answer.
ALTER TABLE groups ADD COLUMN unanswered INTEGER NOT NULL DEFAULT 0 CHECK (unanswered IN (0, 1));
UPDATE groups SET unanswered = 1 WHERE status = 'failed' AND reason NOT LIKE 'ReplyError:%';
ALTER TABLE steps ADD COLUMN unanswered INTEGER NOT NULL DEFAULT 0 CHECK (unanswered IN (0, 1));
UPDATE steps SET unanswered = 1 WHERE stats ->> 'merge_failed' NOT LIKE 'ReplyError:%';

ALTER TABLE verdicts ADD COLUMN reason TEXT; -- verify, judge; NULL = there is a reward
UPDATE verdicts SET reason = substr(error, 1, instr(error, ': ') - 1),
                    error = substr(error, instr(error, ': ') + 2)
  WHERE error IS NOT NULL;
