-- What every script starts with: arguments, keys, the partition's record, its clock.
--
-- KEYS     record messages open done parked dead, then five for each queue (ready delayed flight bell steps),
--          then four for each run (run log entities out). All share one hash tag.
-- ARGV[1]  MessagePack [server run id, mark (8 bytes), id prefix, inline ownership, queue backstop,
--          resent: an earlier sending of this very call may have run]; the last three are booleans
-- ARGV[2]  MessagePack list of queue names, in the order of their keys
-- ARGV[3]  MessagePack list of the verb's own arguments
-- Answers common to all: {'server'}      the writer believes to speak to another server: connect again
--                        {'closed'}      the partition was never opened here
--                        {'keys', list}  the partition knows queues whose keys are missing: call again
-- Integers are milliseconds unless a name says otherwise. Payloads are opaque.

local call, pack, unpack_value = redis.call, cmsgpack.pack, cmsgpack.unpack
local floor, max, min, format = math.floor, math.max, math.min, string.format

-- The values of a packed list of `count`, at most 15: what follows the one byte that opens it. As a list they
-- would cost three times as much, for a table that grows by each of them. What comes first is to be ignored.
local function unpack_list(raw, count)
  return cmsgpack.unpack_limit(raw, count, 1)
end

local _, SERVER, MARK, PREFIX, INLINE_OWNERSHIP, QUEUE_BACKSTOP, RESENT = unpack_list(ARGV[1], 6)
local QUEUES = unpack_value(ARGV[2])
local A = unpack_value(ARGV[3])

local K = { record = KEYS[1], messages = KEYS[2], open = KEYS[3], done = KEYS[4], parked = KEYS[5], dead = KEYS[6] }
local Q = {}
for i, name in ipairs(QUEUES) do
  local base = 6 + (i - 1) * 5
  Q[name] = {
    ready = KEYS[base + 1], delayed = KEYS[base + 2], flight = KEYS[base + 3], bell = KEYS[base + 4],
    steps = KEYS[base + 5],
  }
end

local function int(value)
  return format('%d', value)
end

local function num(value)
  return tonumber(value) or 0
end

-- `pin` is never there outside tests: it stands in for the server's clock.
local RECORD = call('HMGET', K.record, 'server', 'lease', 'queues', 'amnesty', 'last', 'offset', 'pin')
if not RECORD[1] then return pack({ 'closed' }) end
if RECORD[3] ~= ARGV[2] then
  for _, name in ipairs(unpack_value(RECORD[3])) do
    if not Q[name] then return pack({ 'keys', unpack_value(RECORD[3]) }) end
  end
end
local LEASE, amnesty = num(RECORD[2]), num(RECORD[4])
local DOUBT = floor(LEASE / 2) -- see 20_messages

local now, offset
do
  local time, last = call('TIME'), num(RECORD[5])
  now = RECORD[7] and tonumber(RECORD[7]) or (num(time[1]) * 1000 + floor(num(time[2]) / 1000))
  -- When the server's clock is set right at one stroke the offset goes. When little by little it stays, and this
  -- partition is ahead by as much, which nothing minds.
  offset = now >= last and 0 or num(RECORD[6])
  now = now + offset
  if now < last then -- the server's clock went back (a fail-over): this partition's does not
    offset, now = offset + last - now, last
  end
end

-- Writing scripts call this first. It keeps the clock, learns new queues, and starts the amnesty when a
-- new server speaks: the time the old one was away must not count against any lease. Which server speaks is
-- asked of itself: a proxy may have led an old connection elsewhere (then 'server'), and a server may take
-- over for the second time under the name it had before.
local function tick()
  if SERVER ~= RECORD[1] then
    if not string.find(call('INFO', 'server'), 'run_id:' .. SERVER, 1, true) then return 'server' end
    amnesty = now + LEASE
    call('HSET', K.record, 'server', SERVER, 'amnesty', int(amnesty))
  end
  if RECORD[3] ~= ARGV[2] and #QUEUES > #unpack_value(RECORD[3]) then call('HSET', K.record, 'queues', ARGV[2]) end
  if now ~= num(RECORD[5]) then call('HSET', K.record, 'last', int(now)) end
  if offset ~= num(RECORD[6]) then call('HSET', K.record, 'offset', int(offset)) end
  return 'ok'
end
