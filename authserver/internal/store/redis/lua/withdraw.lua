-- withdraw: undoes an approval that Postgres has refused. If its code is still current, the replaced code, its resource
-- and its tries are restored; client, redirect URI and challenge are the same for every approval of one grant. If a later
-- approval has replaced it, it is removed from the replaced ones. A redeemed or revoked grant does not change.
-- KEYS[1] g:{grant}
-- ARGV 1 number of the approval
-- Returns: ok
local g = redis.call('HMGET', KEYS[1], 'st', 'ap', 'fo')
local state, approval, former = unpack(g)
local number = tonumber(ARGV[1])
if state ~= 'pending' or not approval then return 'ok' end
local kept = former and cmsgpack.unpack(former) or {}
if tonumber(approval) == number then
  local back = table.remove(kept)
  if not back then
    redis.call('DEL', KEYS[1])
    return 'ok'
  end
  redis.call('HSET', KEYS[1], 'ap', back[1], 'ch', back[2], 'cx', string.format('%d', back[3]), 'en', back[4], 'wd', number)
  if back[6] then redis.call('HSET', KEYS[1], 'rs', back[6]) end -- the previous release does not store it
  if back[5] then redis.call('HSET', KEYS[1], 'ft', back[5]) else redis.call('HDEL', KEYS[1], 'ft') end
  redis.call('PEXPIREAT', KEYS[1], back[3] + 600000)
else
  for place = #kept, 1, -1 do
    if kept[place][1] == number then table.remove(kept, place) end
  end
  redis.call('HSET', KEYS[1], 'wd', number)
end
if #kept > 0 then
  redis.call('HSET', KEYS[1], 'fo', cmsgpack.pack(kept))
else
  redis.call('HDEL', KEYS[1], 'fo')
end
return 'ok'
