-- once: records a value for a time. The nonce of the first call distinguishes its own retry from a replay.
-- KEYS[1] o:{digest}
-- ARGV 1 nonce, 2 time to live (ms)
-- Returns: first | again
local former = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
if former and former ~= ARGV[1] then return 'again' end
return 'first'
