-- once: remember that something was met, for a time. The nonce of whoever met it first tells its own retry from a repetition.
-- KEYS[1] o:{digest}
-- ARGV 1 nonce, 2 time to live (ms)
-- Answers: first | again
local former = redis.call('SET', KEYS[1], ARGV[1], 'NX', 'GET', 'PX', ARGV[2])
if former and former ~= ARGV[1] then return 'again' end
return 'first'
