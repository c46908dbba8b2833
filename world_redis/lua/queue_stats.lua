-- What a partition holds, read at one moment: its queues, its runs, its deliveries in flight.
--
-- ARGV[3]  [1 how many deliveries of each queue to list, those whose deadline is nearest first; 0: none]
-- Answers  ['ok', now, queues, open runs, parked runs, dead letters, rescues fired so far, lease]
--   queue     [name, ready, due, delayed, in flight, lapsed, ms the oldest has waited, messages made ready so
--             far, deliveries]
--   delivery  [message id, number, kind, run id, key, attempt, holder, ms left]
--
-- A message is counted in one place: ready · due (its delay is over and nobody has promoted it) · delayed (a
-- rescue is one too) · in flight · lapsed (its deadline has passed: to be doubted now, or taken). Due and
-- lapsed ones are work as ready ones are: they are all there is to see when every worker is gone.
--
-- Resend   writes nothing.
--
-- Prevents: a backlog summed from readings of different moments, in which a message counts twice or never.
--
-- Needs    messages

local LIMIT = A[1]

-- Length, time of the first entry, entries ever added. A stream of which nothing was ever sent is not there.
local function stream(key)
  if call('EXISTS', key) == 0 then return 0, nil, 0 end
  local info = call('XINFO', 'STREAM', key)
  local field = {}
  for i = 1, #info, 2 do field[info[i]] = info[i + 1] end
  local first = field['first-entry']
  return field['length'], first and tonumber(string.match(first[1], '^%d+')), field['entries-added']
end

local function count(key, low, high)
  return call('ZCOUNT', key, low, high)
end

-- ms since the lowest score of a sorted set, 0 when it is empty or in the future.
local function waited(key)
  local first = call('ZRANGE', key, 0, 0, 'WITHSCORES')[2]
  return first and max(0, now - tonumber(first)) or 0
end

local function deliveries_of(keys)
  local rows = {}
  if LIMIT == 0 then return rows end
  for _, id in ipairs(call('ZRANGE', keys.flight, 0, LIMIT - 1)) do
    local m = message_load(id)
    if m then rows[#rows + 1] = { id, m.number, m.kind, m.run, m.key, m.attempt, m.holder, lease_left(m) } end
  end
  return rows
end

-- The ids of a stream are of the server's clock, everything else of the partition's.
local server_time = call('TIME')
local server_now = num(server_time[1]) * 1000 + floor(num(server_time[2]) / 1000)

local function queue_of(name)
  local keys = Q[name]
  local runs, since, added_runs = stream(keys.ready)
  local steps, steps_since, added_steps = stream(keys.steps)
  local ready, added = runs + steps, added_runs + added_steps
  since = since and steps_since and min(since, steps_since) or since or steps_since
  local due = count(keys.delayed, '-inf', int(now))
  local lapsed = amnesty > now and 0 or count(keys.flight, '-inf', int(now))
  local oldest = max(since and server_now - since or 0, waited(keys.delayed))
  if lapsed > 0 then oldest = max(oldest, waited(keys.flight)) end
  return {
    name, ready, due, call('ZCARD', keys.delayed) - due, call('ZCARD', keys.flight) - lapsed, lapsed, oldest, added,
    deliveries_of(keys),
  }
end

local queues = {}
for i, name in ipairs(QUEUES) do queues[i] = queue_of(name) end
return pack({
  'ok', now, queues, call('ZCARD', K.open), call('HLEN', K.parked), call('XLEN', K.dead),
  num(call('HGET', K.record, 'rescues')), LEASE,
})
