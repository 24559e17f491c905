-- undo: what the call with this nonce decided was not committed by the Ledger; the former state is back, unless something
-- else has happened since. A call that is still on its way is refused when it comes: the last four such nonces are kept.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce
-- Answers: ok | late
local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'gn', 'ph', 'cx', 'xn')
local state, nonce, generation, former, dies, undone = unpack(g)
if not state or state == 'revoked' then return 'late' end
if state ~= 'active' or nonce ~= ARGV[1] then
  redis.call('HSET', KEYS[1], 'xn', string.sub(ARGV[1] .. ' ' .. (undone or ''), 1, 148))
  return 'late'
end
if tonumber(generation) == 1 then
  redis.call('HSET', KEYS[1], 'st', 'pending')
  redis.call('HDEL', KEYS[1], 'ua', 'gn', 'rh', 'nn')
  redis.call('PEXPIREAT', KEYS[1], tonumber(dies) + 600000)
else
  redis.call('HSET', KEYS[1], 'gn', tonumber(generation) - 1, 'rh', former)
  redis.call('HDEL', KEYS[1], 'ph', 'nn')
end
return 'ok'
