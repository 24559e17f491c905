-- superseded: returns why Postgres holds a later step than that of the presented code or refresh token. It makes no
-- decision, so that a Redis that was restored from an older copy cannot repeat one.
-- KEYS[1] g:{grant}
-- ARGV 1 nonce, or '' to hold nothing, 2 hash that this request would store, or '' if Postgres has another one,
--      3 generation in Postgres, 4 nonces of the tries that took this step, 5 nonces of given-up decisions
-- Returns: late (nothing was read) | again (the request repeats the one of that step, G11) |
--      undone (all of those tries were undone here, so no client has the result, G10) | superseded
undo_given_up(ARGV[5])
local g = redis.call('HMGET', KEYS[1], 'st', 'nn', 'gn', 'rh', 'at', 'en', 'un')
local state, holders, generation, hash, at, ends, undone = unpack(g)
if state == 'active' and ARGV[2] ~= '' and tonumber(generation) == tonumber(ARGV[3]) and now < tonumber(ends) then
  if retried(holders, ARGV[1], ARGV[2], hash) then return 'again' end
  if ARGV[1] == '' then
    if place_of(ARGV[2], hash) and at and now - tonumber(at) < repeat_within then return 'again' end
  elseif once_more(holders, ARGV[1], ARGV[2], hash, at) then
    return 'again'
  end
end
if not undone or ARGV[4] == '' then return 'superseded' end
for one in string.gmatch(ARGV[4], '%S+') do
  if not lists(undone, one) then return 'superseded' end
end
return 'undone'
