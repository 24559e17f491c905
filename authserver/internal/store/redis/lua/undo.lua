-- undo: removes the try with this nonce, which did not commit in Postgres, from the holders of the last decision,
-- unless another decision was made since. If no holder remains, it restores the previous state.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce, 2 '1' if Postgres has refused the step
-- Returns: ok | late
if undo(ARGV[1], ARGV[2] == '1') then return 'ok' end
return 'late'
