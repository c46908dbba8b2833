-- A run: its record, its log, its open entities.

local RUN_FIELDS = {
  'status', 'slot', 'count', 'pslot', 'pmark', 's', 'w', 'h', 'a', 'p', 'cancel', 'parked', 'queue', 'parent',
  'parent_step', 'settled', 'started', 'refused_since',
}
local COUNTERS = { s = true, w = true, h = true, a = true, p = true }
local SUBJECT = { s = 'step', w = 'wait', h = 'hook', a = 'attr', p = 'patch' }
local FINISHED = { completed = true, failed = true, cancelled = true }

local function run_keys(index)
  local base = 6 + #QUEUES * 5 + (index - 1) * 4
  return { run = KEYS[base + 1], log = KEYS[base + 2], entities = KEYS[base + 3], out = KEYS[base + 4] }
end

local function run_load(index, id)
  local run = { id = id, keys = run_keys(index), entities = {}, dirty = {}, owners = {}, armed = 0 }
  local values = call('HMGET', run.keys.run, unpack(RUN_FIELDS))
  for i, name in ipairs(RUN_FIELDS) do run[name] = values[i] or '' end
  if run.status == '' then run.status = 'absent' end
  for _, name in ipairs({ 'slot', 'count', 'pslot', 's', 'w', 'h', 'a', 'p' }) do run[name] = num(run[name]) end
  run.finished = FINISHED[run.status] or false
  return run
end

-- Everything that moves with nearly every transition; the rest is written where it changes.
local function run_save(run)
  call('HSET', run.keys.run, 'status', run.status, 'slot', int(run.slot), 'count', int(run.count),
    'pslot', int(run.pslot), 'pmark', run.pmark, 's', int(run.s), 'w', int(run.w), 'h', int(run.h), 'a', int(run.a), 'p', int(run.p))
end

local function position_equals(run, position)
  return run.count == position[1] and run.pslot == position[2] and run.pmark == position[3]
end

-- The one place that allocates a slot.
local function log_append(run, code, id, at, data, extra)
  local rule = RULES[code]
  run.slot = run.slot + 1
  local mark = (rule.decisive or code == 'ss' or code == 'rc') and MARK or ''
  call('XADD', run.keys.log, int(run.slot) .. '-0', 't', code, 'i', id, 'a', int(at > 0 and at or now),
    'm', mark, 'd', data, 'x', extra)
  if rule.decisive then
    run.count, run.pslot, run.pmark, run.decided = run.count + 1, run.slot, MARK, true
  end
  return run.slot
end

-- Events after `seen`: at most 500 or 256 KiB of payload. Raw stream entries, and whether there are more.
local function events_after(run, seen)
  local kept, bytes = {}, 0
  while seen < run.slot do
    -- In small bites: payloads may be a megabyte each.
    local entries = call('XRANGE', run.keys.log, int(seen + 1) .. '-0', '+', 'COUNT', 32)
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

-- Entities are {state, ...} arrays; a step: state mode owner number slot mark due starts errors crashes first detach.
local STEP = { state = 1, mode = 2, owner = 3, number = 4, slot = 5, mark = 6, due = 7, starts = 8, errors = 9, crashes = 10, first = 11, detach = 12 }

local function entity_load(run, id)
  local known = run.entities[id]
  if known ~= nil then return known end
  local raw = call('HGET', run.keys.entities, id)
  known = raw and unpack_value(raw) or false
  run.entities[id] = known
  return known
end

-- Numbers are dense and an ended entity is dropped: below the counter and absent means ended.
local function entity_state(run, id, entity)
  if entity then return entity[1] end
  local kind = string.sub(id, 1, 1)
  if tonumber(string.sub(id, 2)) <= run[kind] then return 'ended' end
  return 'absent'
end

local function entity_put(run, id, entity)
  run.entities[id], run.dirty[id] = entity, true
end

local function entities_save(run)
  for id in pairs(run.dirty) do
    local entity = run.entities[id]
    if entity then
      call('HSET', run.keys.entities, id, pack(entity))
    else
      call('HDEL', run.keys.entities, id)
    end
  end
  run.dirty = {}
end

-- A run that is not finished and not parked gets a wake; see the wake rule in append.lua.
local function wake(run)
  if run.finished or run.parked ~= '' then return end
  message_ensure(run, 'run', 'wake', run.queue, '', now)
end
