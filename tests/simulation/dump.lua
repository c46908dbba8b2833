-- A partition as it is, in one reply: what liveness.check looks at.
--
-- ARGV     1 tag of the partition's keys, 2 log wanted 0/1, 3.. queues
-- Answers  MessagePack [messages, places, open, done, parked, runs]
--   place  [state, queue, message id, stream entry]     run  [id, record, entities, out, lifetimes, log]

local call, tag = redis.call, ARGV[1]
local messages = call('HGETALL', tag .. ':messages')
local places, named, ids = {}, {}, {}
for i = 3, #ARGV do
  local queue = ARGV[i]
  for _, stream in ipairs({ ':ready:', ':steps:' }) do
    for _, entry in ipairs(call('XRANGE', tag .. stream .. queue, '-', '+')) do
      places[#places + 1] = { 'r', queue, entry[2][2], entry[1] }
    end
  end
  for state, name in pairs({ d = 'delayed', f = 'flight' }) do
    for _, id in ipairs(call('ZRANGE', tag .. ':' .. name .. ':' .. queue, 0, -1)) do
      places[#places + 1] = { state, queue, id, '' }
    end
  end
end
local open = call('ZRANGE', tag .. ':open', 0, -1)
local done = call('ZRANGE', tag .. ':done', 0, -1)

local function name(id)
  if not named[id] then
    named[id] = true
    ids[#ids + 1] = id
  end
end

for _, id in ipairs(open) do name(id) end
for _, id in ipairs(done) do name(id) end
for i = 1, #messages, 2 do
  if string.sub(messages[i], -2) ~= ':p' then name(cmsgpack.unpack(messages[i + 1])[2]) end
end

local runs = {}
for _, id in ipairs(ids) do
  local keys, lifetimes = {}, {}
  for i, part in ipairs({ 'run', 'log', 'entities', 'out' }) do
    keys[i] = tag .. ':' .. id .. ':' .. part
    lifetimes[i] = call('PTTL', keys[i])
  end
  runs[#runs + 1] = {
    id, call('HGETALL', keys[1]), call('HGETALL', keys[3]), call('HGETALL', keys[4]), lifetimes,
    ARGV[2] == '1' and call('XRANGE', keys[2], '-', '+') or 0,
  }
end
return cmsgpack.pack({ messages, places, open, done, call('HGETALL', tag .. ':parked'), runs })
