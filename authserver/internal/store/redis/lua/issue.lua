-- issue: stores the code of an approved consent for the given time. A second approval replaces an unused code and its
-- tries. The replaced code is stored in case Postgres refuses the approval (withdraw). An approval that arrives after a
-- later one is stored with the replaced ones.
-- KEYS[1] g:{grant}
-- ARGV 1 code hash, 2 code life (ms), 3 client, 4 redirect URI, 5 resource, 6 challenge ('' for none),
--      7 end of grant (ms), 8 number of the approval
-- Returns: ok | taken (already redeemed or revoked) | ended
local most = 4 -- approvals stored
local g = redis.call('HMGET', KEYS[1], 'st', 'ap', 'fo', 'wd', 'ch', 'cx', 'en', 'ft', 'rs')
local state, approval, former, withdrawn, code, codeDies, ends, tries, resource = unpack(g)
local number, dies = tonumber(ARGV[8]), now + tonumber(ARGV[2])
if state and state ~= 'pending' then return 'taken' end
if now >= tonumber(ARGV[7]) then return 'ended' end
if withdrawn and tonumber(withdrawn) == number then return 'ok' end -- sent twice, refused since
local kept = former and cmsgpack.unpack(former) or {}

-- keep inserts a code in the order of approval numbers. It ignores an approval that is already stored.
local function keep(one)
  local place = 1
  while kept[place] and kept[place][1] < one[1] do place = place + 1 end
  if kept[place] and kept[place][1] == one[1] then return end
  table.insert(kept, place, one)
  if #kept > most then table.remove(kept, 1) end
  redis.call('HSET', KEYS[1], 'fo', cmsgpack.pack(kept))
end

approval = tonumber(approval or nil)
if approval and approval == number then return 'ok' end
if approval and approval > number then
  keep({number, ARGV[1], dies, ARGV[7], false, ARGV[5]})
  return 'ok'
end
if approval then keep({approval, code, tonumber(codeDies), ends, tries, resource}) end
redis.call('HSET', KEYS[1], 'st', 'pending', 'ap', ARGV[8], 'ch', ARGV[1], 'cx', dies, 'cl', ARGV[3], 'ru', ARGV[4], 'rs', ARGV[5],
  'cc', ARGV[6], 'en', ARGV[7])
redis.call('HDEL', KEYS[1], 'ft')
redis.call('PEXPIREAT', KEYS[1], dies + 600000)
return 'ok'
