-- undo: removes the try with this nonce, which did not commit in Postgres, from the holders of the last decision,
-- unless another decision was made since. If no holder remains, it restores the previous state.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce, 2 '1' if Postgres has refused the step, 3 at:holders of the former decision, or ''
-- Returns: ok | overtaken (the grant is active, and this try does not hold the last decision: it was undone before, or
--      there is a later decision) | late (another cause; nothing was changed)
if not undo(ARGV[1], ARGV[2] == '1') then
  local state, holders = unpack(redis.call('HMGET', KEYS[1], 'st', 'nn'))
  if state ~= 'active' or holders == '*' or lists(holders or '', ARGV[1]) then return 'late' end
  return 'overtaken'
end
local at, holders = string.match(ARGV[3], '^(%d+):(.+)$')
if at and not redis.call('HGET', KEYS[1], 'nn') then redis.call('HSET', KEYS[1], 'at', at, 'nn', holders) end
return 'ok'
