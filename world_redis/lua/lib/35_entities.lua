-- The open steps, waits and hooks of a run: a field each in `entities`, under the short id. One that ended is
-- dropped; its number, dense and not above the highest used, tells that it was there.
--
-- Needs    runs

-- step  state mode owner number slot mark due starts errors crashes first detach (see entities.py)
-- wait  state due        hook  state token
local function entity_unpack(id, raw)
  local kind = string.sub(id, 1, 1)
  if kind == 's' then
    local _, state, mode, owner, number, slot, mark, due, starts, errors, crashes, first, detach = unpack_list(raw, 12)
    return {
      state = state, mode = mode, owner = owner, number = number, slot = slot, mark = mark, due = due,
      starts = starts, errors = errors, crashes = crashes, first = first, detach = detach,
    }
  end
  local _, state, value = unpack_list(raw, 2)
  return kind == 'w' and { state = state, due = value } or { state = state, token = value }
end

local function entity_pack(id, e)
  if string.sub(id, 1, 1) == 's' then
    return pack({
      e.state, e.mode, e.owner, e.number, e.slot, e.mark, e.due, e.starts, e.errors, e.crashes, e.first, e.detach,
    })
  end
  return pack({ e.state, e.due or e.token })
end

-- False: it has ended, or was never created.
local function entity_load(run, id)
  local known = run.entities[id]
  if known == nil then
    known = false
    if tonumber(string.sub(id, 2)) <= run_used(run, string.sub(id, 1, 1)) then
      local raw = call('HGET', run.keys.entities, id)
      known = raw and entity_unpack(id, raw)
    end
    run.entities[id] = known
  end
  return known
end

local function entity_state(run, id, entity)
  if entity then return entity.state end
  return tonumber(string.sub(id, 2)) <= run_used(run, string.sub(id, 1, 1)) and 'ended' or 'absent'
end

-- It is created now: its number is used.
local function entity_count(run, id)
  local kind = string.sub(id, 1, 1)
  run[kind] = max(run_used(run, kind), tonumber(string.sub(id, 2)))
end

local function entity_put(run, id, entity)
  run.entities[id], run.dirty[id] = entity, true
end

local function entities_save(run)
  for id in pairs(run.dirty) do
    local entity = run.entities[id]
    if entity then
      call('HSET', run.keys.entities, id, entity_pack(id, entity))
    else
      call('HDEL', run.keys.entities, id)
    end
  end
  run.dirty = {}
end

-- Everything saved under `entities`, as {id, entity}; what hooks have received is not an entity.
local function entities_all(run)
  local found, all = {}, call('HGETALL', run.keys.entities)
  for i = 1, #all, 2 do
    local id = all[i]
    if string.sub(id, 1, 1) ~= 'r' then found[#found + 1] = { id, entity_unpack(id, all[i + 1]) } end
  end
  return found
end
