-- rotate: replaces the current refresh token (G2), repeats the result for a repeated request (G11), or detects a
-- superseded token (G3).
-- KEYS[1] g:{grant}
-- ARGV 1 nonce, 2 generation presented, 3 hash presented, 4 client, 5 resource, 6 hash of the next token, and of those
--      that other processes would create for the same request (32 bytes each), 7 nonces of given-up decisions,
--      8 '1' for a direct try, which only replaces a current token. It must be possible to undo it completely, so it
--      does not replace the first token while the exchange can be repeated
-- Returns, in the order of the checks: late (this try may not decide any more) | missing | ok (own retry) |
--      read_first (a direct try: nothing was changed) | revoked:reason | ended | client |
--      again or again:n (repeats the request that stored the nth hash) | replay (revoked now) |
--      ahead (newer than the stored generation) | replaced (same generation, another token) | resource |
--      ok, or ok:at:holders (a direct try: what undo restores so that the former decision can still be repeated)
undo_given_up(ARGV[7])
local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'en', 'cl', 'gn', 'rh', 'rs', 'rr', 'at', 'un')
local state, holders, ends, client, generation, hash, resource, reason, at, undone = unpack(g)
if undone and lists(undone, ARGV[1]) then return 'late' end
if not state then return 'missing' end
local own = retried(holders, ARGV[1], ARGV[6], hash)
if own then return own end
local repeatable = holders and at and now - tonumber(at) < repeat_within
if ARGV[8] == '1' and (state ~= 'active' or now >= tonumber(ends) or client ~= ARGV[4] or resource ~= ARGV[5]
  or generation ~= ARGV[2] or hash ~= ARGV[3] or (repeatable and generation == '1')) then return 'read_first' end
if state == 'revoked' then return 'revoked:' .. reason end
if now >= tonumber(ends) then return 'ended' end
if client ~= ARGV[4] then return 'client' end
if state == 'pending' then return 'ahead' end
local presented = tonumber(ARGV[2])
generation = tonumber(generation)
if presented < generation then
  local again = presented == generation - 1 and resource == ARGV[5] and once_more(holders, ARGV[1], ARGV[6], hash, at)
  if again then return again end
  redis.call('HSET', KEYS[1], 'st', 'revoked', 'rr', 'refresh_token_replayed', 'rv', now)
  redis.call('HDEL', KEYS[1], 'rh', 'ph', 'nn', 'at')
  return 'replay'
end
if presented > generation then return 'ahead' end
if hash ~= ARGV[3] then return 'replaced' end
if resource ~= ARGV[5] then return 'resource' end
redis.call('HSET', KEYS[1],
  'gn', generation + 1, 'rh', string.sub(ARGV[6], 1, 32), 'ph', hash, 'nn', ARGV[1], 'at', now)
-- The exchange can no longer be undone, and Postgres detects a reuse of the code: this frees a third of the memory.
if generation == 1 then redis.call('HDEL', KEYS[1], 'ch', 'cx', 'ru', 'cc', 'ua', 'ft', 'fo', 'wd') end
if ARGV[8] == '1' and repeatable then return 'ok:' .. at .. ':' .. holders end
return 'ok'
