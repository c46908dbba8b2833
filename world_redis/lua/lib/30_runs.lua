-- A run: its record and its log.
--
-- Needs    rules messages

-- Only what most calls look at: a hash is searched field by field. The rest is read where it is used.
local function run_load(index, id)
  local base = 6 + #QUEUES * 5 + (index - 1) * 4
  local keys = { run = KEYS[base + 1], log = KEYS[base + 2], entities = KEYS[base + 3], out = KEYS[base + 4] }
  local found = call('HMGET', keys.run, 'status', 'slot', 'count', 'pslot', 'pmark', 's', 'cancel', 'parked',
    'refused_since')
  local status = found[1] or 'absent'
  return { -- sixteen fields: a table of one more is twice as large
    id = id, keys = keys, status = status, slot = num(found[2]), count = num(found[3]), pslot = num(found[4]),
    pmark = found[5] or '', s = num(found[6]), cancel = found[7] or '', parked = found[8] or '',
    refused_since = found[9] or '',
    finished = status == 'completed' or status == 'failed' or status == 'cancelled',
    written = {}, -- the events written here: {0, at, mark, extra}; who causes one puts its name in front
    entities = {}, dirty = {}, owners = {},
  }
end

-- A field of the record that never changes, or seldom.
local function run_field(run, name)
  return call('HGET', run.keys.run, name) or ''
end

-- The highest number used of a kind of entity ('s', 'w', …). Numbers are dense.
local function run_used(run, kind)
  if not run[kind] then run[kind] = num(call('HGET', run.keys.run, kind)) end
  return run[kind]
end

-- Was a decisive event written here?
local function run_decided(run)
  return run.pslot > run.slot - #run.written
end

-- What moves with the events, and with it `others` (name, value, and so on); the rest is written where it changes.
local function run_save(run, others)
  if #run.written == 0 then return end
  local fields = {
    'slot', int(run.slot), 'count', int(run.count), 'pslot', int(run.pslot), 'pmark', run.pmark, 's', int(run.s),
    unpack(others or {}),
  }
  if run.w or run.h or run.a or run.p then
    for _, kind in ipairs({ 'w', 'h', 'a', 'p' }) do
      if run[kind] then
        fields[#fields + 1] = kind
        fields[#fields + 1] = int(run[kind])
      end
    end
  end
  call('HSET', run.keys.run, unpack(fields))
end

local function position_equals(run, position)
  return run.count == position[1] and run.pslot == position[2] and run.pmark == position[3]
end

-- Did the log come by this position, which a writer has seen? After a fail-over it may be behind, or have gone
-- another way.
local function position_passed(run, position)
  if position[1] == 0 or position_equals(run, position) then return true end
  local slot = format('%d-0', position[2])
  local entry = position[1] <= run.count and call('XRANGE', run.keys.log, slot, slot)[1]
  return entry and entry[2][8] == position[3]
end

-- The one place that allocates a slot.
local function log_append(run, code, id, at, data, extra)
  local decisive = rule_decisive(code)
  local slot, mark = run.slot + 1, (decisive or code == 'ss' or code == 'rc') and MARK or ''
  if at <= 0 then at = now end
  call('XADD', run.keys.log, format('%d-0', slot), 't', code, 'i', id, 'a', int(at), 'm', mark, 'd', data, 'x', extra)
  run.slot = slot
  if decisive then
    run.count, run.pslot, run.pmark = run.count + 1, slot, MARK
  end
  run.written[#run.written + 1] = { 0, at, mark, extra }
  return slot
end

-- A run begins. What every transition reads stands first in its record: a small hash is searched from the start.
local function run_create(run, fields, data)
  log_append(run, 'rc', '', 0, data, '')
  run_save(run, { 'status', 'pending', unpack(fields) })
  call('ZADD', K.open, int(now), run.id)
end

-- Events after `seen`, up to slot `last`: at most 500 or 256 KiB of payload. Raw stream entries, and whether
-- there are more.
local function events_after(run, seen, last)
  local kept, bytes = {}, 0
  while seen < last do
    -- In small bites: payloads may be a megabyte each.
    local entries = call('XRANGE', run.keys.log, format('%d-0', seen + 1), format('%d-0', last), 'COUNT', 32)
    if #entries == 0 then break end
    for _, entry in ipairs(entries) do
      bytes = bytes + #entry[2][10]
      if #kept == 500 or (bytes > 262144 and #kept > 0) then return kept, true end
      kept[#kept + 1] = entry
    end
    seen = seen + #entries
  end
  return kept, false
end

-- What a new wake tells whoever has the run's body at hand: the last decisive event, as the log has it, and how many
-- there are with it. Nothing when its data is long: then it is read from the log alone.
local NEWS_MAX = 4096 -- bytes

local function news_of(run)
  local last = format('%d-0', run.pslot)
  local entry = call('XRANGE', run.keys.log, last, last)[1]
  return entry and #entry[2][10] <= NEWS_MAX and pack({ run.count, entry }) or ''
end

-- A run that is not finished and not parked gets a wake; see the wake rule in append.lua. One that waits already keeps
-- its news. They are gone once it was handed out: a redelivery, or one given back, has none.
local function wake(run)
  if run.finished or run.parked ~= '' then return end
  local m, new = message_ensure(run, 'run', 'wake', run_field(run, 'queue'), '', now)
  if new then
    m.answer = news_of(run)
    message_save(m)
  end
end
