-- undo: the decision with this nonce was not committed in Postgres; the former state is restored, unless something else has
-- happened since.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce
-- Answers: ok | late
if undo(ARGV[1]) then return 'ok' end
return 'late'
