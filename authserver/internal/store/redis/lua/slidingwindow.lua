-- Counts events within a sliding window.
-- KEYS[1] a sorted set: one member per event, scored by its time in milliseconds
-- ARGV    limit, window in milliseconds, add (1: count one more event, unless the key must wait)
-- returns milliseconds until the key is below its limit again; 0 when it is below
local limit, window, add = tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local count = redis.call('ZCARD', KEYS[1])
if count >= limit then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return math.max(1, oldest[2] + window - now)
end
if add then
  redis.call('ZADD', KEYS[1], now, clock[1] .. '.' .. clock[2] .. '.' .. count)
  redis.call('PEXPIRE', KEYS[1], window)
end
return 0
