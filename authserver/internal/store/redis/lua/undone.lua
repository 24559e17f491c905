-- undone: reports whether the decision with this hash was the last one that was undone.
-- KEYS[1] g:{grant}
-- ARGV 1 hash of a refresh token, or of the nonce in its place
-- Returns: ok (it was) | missing
if redis.call('HGET', KEYS[1], 'un') == ARGV[1] then return 'ok' end
return 'missing'
