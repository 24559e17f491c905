-- prelude: the beginning of every script. It uses Redis' clock.
-- ARGV the arguments of the script, then: deadline (ms, 0 for none), mark of the call
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)

local repeat_within = 60000 -- how long a request can be repeated (ms)
local most_holders = 3

-- lists reports whether a space-separated list has an entry.
local function lists(list, entry)
  return string.find(' ' .. list .. ' ', ' ' .. entry .. ' ', 1, true) ~= nil
end

-- undo removes the try with this nonce from the holders of the last decision, and reports whether the try was one. If
-- no holder remains, no client has the result, and undo restores the previous state. It does not change a revoked
-- grant. It stores the last nonces that were undone, unless unrecorded is true: Postgres has refused the step, so
-- superseded need not know it.
local function undo(nonce, unrecorded)
  local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'gn', 'ph', 'cx', 'un')
  local state, holders, generation, former, dies, undone = unpack(g)
  if state ~= 'active' or not holders or not lists(holders, nonce) then return false end
  if tonumber(generation) > 1 and not former then return false end -- the current token was used since
  if not unrecorded then
    redis.call('HSET', KEYS[1], 'un', string.sub(nonce .. ' ' .. (undone or ''), 1, 50))
  end
  local others = {}
  for one in string.gmatch(holders, '%S+') do
    if one ~= nonce then others[#others + 1] = one end
  end
  if #others > 0 then
    redis.call('HSET', KEYS[1], 'nn', table.concat(others, ' '))
  elseif tonumber(generation) == 1 then
    redis.call('HSET', KEYS[1], 'st', 'pending')
    redis.call('HDEL', KEYS[1], 'at', 'gn', 'rh', 'nn')
    redis.call('PEXPIREAT', KEYS[1], tonumber(dies) + 600000)
  else
    redis.call('HSET', KEYS[1], 'gn', tonumber(generation) - 1, 'rh', former)
    redis.call('HDEL', KEYS[1], 'ph', 'nn', 'at')
  end
  return true
end

-- undo_given_up undoes the last decision for the tries in a space-separated list of nonces (G10).
local function undo_given_up(list)
  if list == '' then return end
  for one in string.gmatch(redis.call('HGET', KEYS[1], 'nn') or '', '%S+') do
    if lists(list, one) then undo(one) end
  end
end

-- place_of returns the place of a hash among hashes of 32 bytes, or nil.
local function place_of(hashes, hash)
  for i = 1, #hashes, 32 do
    if string.sub(hashes, i, i + 31) == hash then return (i + 31) / 32 end
  end
end

-- repeated returns the result for a repeated request.
local function repeated(place)
  if place == 1 then return 'again' end
  return 'again:' .. place
end

-- retried returns the result of a try that already holds the last decision (G8), or nil.
local function retried(holders, nonce, hashes, hash)
  if not holders or not lists(holders, nonce) then return nil end
  local place = place_of(hashes, hash)
  if not place then return nil end
  if place == 1 and string.match(holders, '^%S+') == nonce then return 'ok' end
  return repeated(place)
end

-- hold adds a try to the holders of the last decision. A decision with too many holders is never undone.
local function hold(holders, nonce)
  local _, more = string.gsub(holders, ' ', '')
  if holders == '*' or more + 1 >= most_holders then
    redis.call('HSET', KEYS[1], 'nn', '*')
  else
    redis.call('HSET', KEYS[1], 'nn', holders .. ' ' .. nonce)
  end
end

-- once_more returns the result for a request that repeats the one of the last decision (G11), or nil. Such a request
-- would store the hash that the decision stored less than 60 s ago.
local function once_more(holders, nonce, hashes, hash, at)
  if not holders or not at or now - tonumber(at) >= repeat_within then return nil end
  local place = place_of(hashes, hash)
  if not place then return nil end
  hold(holders, nonce)
  return repeated(place)
end
