-- Counts one more event within a sliding window, unless the limit is reached.
-- KEYS[1] a sorted set: one member per event, scored by its time in milliseconds
-- ARGV    the limit, the window in milliseconds
-- returns milliseconds until one more is allowed; 0 if this one was counted
local most, window = tonumber(ARGV[1]), tonumber(ARGV[2])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local count = redis.call('ZCARD', KEYS[1])
if count >= most then
  local oldest = redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')
  return math.max(1, oldest[2] + window - now)
end
redis.call('ZADD', KEYS[1], now, time[1] .. '.' .. time[2] .. '.' .. count)
redis.call('PEXPIRE', KEYS[1], window)
return 0
