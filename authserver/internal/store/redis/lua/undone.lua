-- undone: whether the decision whose hash this is was the last one that was undone.
-- KEYS[1] g:{grant}
-- ARGV 1 hash of a refresh token, or of the nonce that stands for it
-- Answers: ok (it was) | missing
if redis.call('HGET', KEYS[1], 'un') == ARGV[1] then return 'ok' end
return 'missing'
