-- repair: restores the state of an active grant from Postgres after Redis has lost it. It only moves forward, and a
-- revoked grant stays revoked (G7).
-- KEYS[1] g:{grant}
-- ARGV 1 generation, 2 hash of its refresh token, 3 client, 4 resource, 5 end of grant (ms)
-- Returns: ok | revoked
local g = redis.call('HMGET', KEYS[1], 'st', 'gn')
if g[1] == 'revoked' then return 'revoked' end
if g[1] == 'active' and tonumber(g[2]) >= tonumber(ARGV[1]) then return 'ok' end
redis.call('HSET', KEYS[1], 'st', 'active', 'gn', ARGV[1], 'rh', ARGV[2], 'cl', ARGV[3], 'rs', ARGV[4], 'en', ARGV[5])
redis.call('HDEL', KEYS[1], 'ph', 'nn', 'at')
redis.call('PEXPIREAT', KEYS[1], tonumber(ARGV[5]) + 86400000)
return 'ok'
