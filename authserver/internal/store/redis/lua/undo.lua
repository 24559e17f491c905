-- undo: restores the state before the decision with this nonce, which was not committed in Postgres, unless another
-- decision was made since.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce
-- Returns: ok | late
if undo(ARGV[1]) then return 'ok' end
return 'late'
