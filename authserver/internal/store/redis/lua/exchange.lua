-- exchange: redeems a code once (G1), or repeats the result for a repeated request (G11). It compares everything that
-- the code is bound to in the same step.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce, 2 code hash, 3 client, 4 redirect URI, 5 resource, 6 challenge of the verifier ('' for none),
--      7 hash of the first refresh token, and of those that other processes would create for the same request (32
--      bytes each), 8 nonces of given-up decisions, 9 '1' for a direct try, which only redeems a valid unused code
-- Returns: ok | late (this try may not decide any more) | read_first (a direct try: nothing was changed) | missing |
--      client | replaced | spent (used long ago, its data is gone) |
--      revoked:reason | again or again:n (repeats the request that stored the nth hash) | reused (revoked now) |
--      expired | redirect, verifier, resource (counted, except a missing verifier) | burned (the fifth: revoked now) |
--      ended
undo_given_up(ARGV[8])
local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'cl', 'ch', 'ru', 'rs', 'cc', 'cx', 'en', 'rr', 'rh', 'at',
  'un')
local state, holders, client, code, uri, resource, challenge, dies, ends, ended, hash, at, undone = unpack(g)
if undone and lists(undone, ARGV[1]) then return 'late' end
if not state then return 'missing' end
local own = retried(holders, ARGV[1], ARGV[7], hash)
if own then return own end
if ARGV[9] == '1' and (state ~= 'pending' or client ~= ARGV[3] or code ~= ARGV[2] or uri ~= ARGV[4]
  or challenge ~= ARGV[6] or resource ~= ARGV[5] or now >= tonumber(dies) or now >= tonumber(ends)) then
  return 'read_first'
end
if client ~= ARGV[3] then return 'client' end
if state == 'revoked' then return 'revoked:' .. ended end
if not code then return 'spent' end
if code ~= ARGV[2] then return 'replaced' end

local function revoke(reason)
  redis.call('HSET', KEYS[1], 'st', 'revoked', 'rr', reason, 'rv', now)
  redis.call('HDEL', KEYS[1], 'rh', 'ph', 'nn', 'at')
  redis.call('PEXPIREAT', KEYS[1], tonumber(ends) + 86400000)
end

local wrong = false
if uri ~= ARGV[4] then wrong = 'redirect'
elseif challenge ~= ARGV[6] then wrong = 'verifier'
elseif resource ~= ARGV[5] then wrong = 'resource' end

if state == 'active' then
  if wrong then return wrong end
  local again = now < tonumber(ends) and once_more(holders, ARGV[1], ARGV[7], hash, at)
  if again then return again end
  revoke('code_reused')
  return 'reused'
end
if now >= tonumber(dies) then return 'expired' end
if now >= tonumber(ends) then return 'ended' end
if wrong == 'verifier' and ARGV[6] == '' then return wrong end
if wrong then
  if redis.call('HINCRBY', KEYS[1], 'ft', 1) >= 5 then
    revoke('code_guessed')
    return 'burned'
  end
  return wrong
end
redis.call('HSET', KEYS[1], 'st', 'active', 'at', now, 'gn', 1, 'rh', string.sub(ARGV[7], 1, 32), 'nn', ARGV[1])
redis.call('HDEL', KEYS[1], 'fo', 'wd')
redis.call('PEXPIREAT', KEYS[1], tonumber(ends) + 86400000)
return 'ok'
