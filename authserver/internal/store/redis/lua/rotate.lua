-- rotate: exchange the current refresh token for the next (G2), or recognise a superseded one (G3).
-- KEYS[1] g:{grant}
-- ARGV 1 nonce, 2 generation presented, 3 hash presented, 4 client, 5 resource, 6 hash of the next token
-- Answers, in this order of checks: missing | ok (own retry) | late (undone before it came) | revoked:reason | ended | client | replay (revoked now) |
--      ahead (newer than known here) | replaced (same generation, another token) | resource | ok
local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'en', 'cl', 'gn', 'rh', 'rs', 'xn', 'rr')
local state, nonce, ends, client, generation, hash, resource, undone = unpack(g)
if not state then return 'missing' end
if nonce == ARGV[1] then return 'ok' end
if undone and string.find(' ' .. undone, ' ' .. ARGV[1] .. ' ', 1, true) then return 'late' end
if state == 'revoked' then return 'revoked:' .. g[9] end
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
if now >= tonumber(ends) then return 'ended' end
if client ~= ARGV[4] then return 'client' end
if state == 'pending' then return 'ahead' end
local presented = tonumber(ARGV[2])
generation = tonumber(generation)
if presented < generation then
  redis.call('HSET', KEYS[1], 'st', 'revoked', 'rr', 'refresh_token_replayed', 'rv', now)
  redis.call('HDEL', KEYS[1], 'rh', 'ph', 'nn')
  return 'replay'
end
if presented > generation then return 'ahead' end
if hash ~= ARGV[3] then return 'replaced' end
if resource ~= ARGV[5] then return 'resource' end
redis.call('HSET', KEYS[1], 'gn', generation + 1, 'rh', ARGV[6], 'ph', hash, 'nn', ARGV[1])
-- The exchange can no longer be undone, and the Ledger tells a reuse of the code by itself: a third of the memory is free again.
if generation == 1 then redis.call('HDEL', KEYS[1], 'ch', 'cx', 'ru', 'cc', 'ua', 'ft') end
return 'ok'
