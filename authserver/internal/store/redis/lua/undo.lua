-- undo: takes the last decision away from the try with this nonce, which did not commit it in Postgres, unless another
-- decision was made since. If no other try holds the decision, the state before it is restored.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce
-- Returns: ok | late
if undo(ARGV[1]) then return 'ok' end
return 'late'
