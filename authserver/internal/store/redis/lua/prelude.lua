-- prelude: the beginning of every script. It uses Redis' clock.
-- ARGV the arguments of the script, then: deadline (ms, 0 for none), mark of the call
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

-- undo restores the state before the decision of a nonce and reports whether it did: only the last decision can be
-- undone, and nothing in a revoked grant. It stores the undone hash, which no client received.
local function undo(nonce)
  local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'gn', 'ph', 'cx', 'rh')
  local state, last, generation, former, dies, hash = unpack(g)
  if state ~= 'active' or last ~= nonce then return false end
  redis.call('HSET', KEYS[1], 'un', hash)
  if tonumber(generation) == 1 then
    redis.call('HSET', KEYS[1], 'st', 'pending')
    redis.call('HDEL', KEYS[1], 'ua', 'gn', 'rh', 'nn')
    redis.call('PEXPIREAT', KEYS[1], tonumber(dies) + 600000)
  else
    redis.call('HSET', KEYS[1], 'gn', tonumber(generation) - 1, 'rh', former)
    redis.call('HDEL', KEYS[1], 'ph', 'nn')
  end
  return true
end

-- undo_given_up undoes the last decision if its nonce is in a space-separated list of nonces (G10).
local function undo_given_up(list)
  if list == '' then return end
  local last = redis.call('HGET', KEYS[1], 'nn')
  if last and string.find(' ' .. list .. ' ', ' ' .. last .. ' ', 1, true) then undo(last) end
end
