-- revoke: marks the grant as revoked, even if Redis does not know it (G7).
-- KEYS[1] g:{grant}
-- ARGV 1 reason, 2 end of grant (ms)
-- Returns: ok
if redis.call('HGET', KEYS[1], 'st') ~= 'revoked' then
  redis.call('HSET', KEYS[1], 'st', 'revoked', 'rr', ARGV[1], 'rv', now)
  redis.call('HDEL', KEYS[1], 'rh', 'ph', 'nn', 'at')
end
redis.call('PEXPIREAT', KEYS[1], tonumber(ARGV[2]) + 86400000)
return 'ok'
