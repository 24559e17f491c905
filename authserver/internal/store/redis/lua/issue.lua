-- issue: a consent was approved; its code is good for the given time. A second approval replaces a code still unused.
-- KEYS[1] g:{grant}
-- ARGV 1 code hash, 2 code life (ms), 3 client, 4 redirect URI, 5 resource, 6 challenge ('' for none), 7 end of grant (ms)
-- Answers: ok | taken (redeemed or revoked already) | ended
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local state = redis.call('HGET', KEYS[1], 'st')
if state and state ~= 'pending' then return 'taken' end
if now >= tonumber(ARGV[7]) then return 'ended' end
local dies = now + tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'st', 'pending', 'ch', ARGV[1], 'cx', dies, 'cl', ARGV[3], 'ru', ARGV[4], 'rs', ARGV[5], 'cc', ARGV[6],
  'en', ARGV[7])
redis.call('PEXPIREAT', KEYS[1], dies + 600000)
return 'ok'
