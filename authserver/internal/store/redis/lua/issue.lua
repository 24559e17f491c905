-- issue: a consent was approved; its code is good for the given time. A second approval replaces a code still unused, with its
-- tries; an approval that a later one has overtaken on its way here changes nothing.
-- KEYS[1] g:{grant}
-- ARGV 1 code hash, 2 code life (ms), 3 client, 4 redirect URI, 5 resource, 6 challenge ('' for none), 7 end of grant (ms),
--      8 number of the approval
-- Answers: ok | taken (redeemed or revoked already) | ended
local g = redis.call('HMGET', KEYS[1], 'st', 'ap')
local state, approval = unpack(g)
if state and state ~= 'pending' then return 'taken' end
if now >= tonumber(ARGV[7]) then return 'ended' end
if approval and tonumber(approval) >= tonumber(ARGV[8]) then return 'ok' end
local dies = now + tonumber(ARGV[2])
redis.call('HSET', KEYS[1], 'st', 'pending', 'ap', ARGV[8], 'ch', ARGV[1], 'cx', dies, 'cl', ARGV[3], 'ru', ARGV[4], 'rs', ARGV[5],
  'cc', ARGV[6], 'en', ARGV[7])
redis.call('HDEL', KEYS[1], 'ft')
redis.call('PEXPIREAT', KEYS[1], dies + 600000)
return 'ok'
