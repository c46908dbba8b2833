-- The end of a run: everything it had waiting goes, whoever waits for it is told.
--
-- Needs    messages runs entities

-- A parent whose child ended: its step ends with it, in the same script. `parent` is loaded, or nil.
local function parent_notify(run, parent, code, data)
  if not parent or parent.finished or parent.status == 'absent' then return end
  local id = run_field(run, 'parent_step')
  local step = entity_load(parent, id)
  if not step or step.state ~= 'running' or step.owner ~= run.id then return end
  log_append(parent, code, id, 0, data, '')
  entity_put(parent, id, false)
  entities_save(parent)
  run_save(parent)
  wake(parent)
end

-- A child that continues as a new run: its parent waits for that one from now on.
local function parent_move(run, parent, heir)
  local id = run_field(run, 'parent_step')
  local step = parent and not parent.finished and entity_load(parent, id)
  if not step or step.state ~= 'running' or step.owner ~= run.id then return end
  step.owner = heir
  entity_put(parent, id, step)
  entities_save(parent)
end

-- Children not detached are asked to cancel by a message of their own, since their keys are not here.
local function children_cancel(run, entities)
  for _, found in ipairs(entities) do
    local step = found[2]
    if step.state == 'running' and step.mode == 'child' and step.detach == 0 then
      message_publish('cancel', step.owner, 'cancel', run_field(run, 'queue'), '', now)
    end
  end
end

-- Deliveries at work for the run learn of a cancel (1) or of its end (3) when they renew; 2 is step_stop's.
local function deliveries_signal(run, out, word)
  local ids = {}
  for i = 1, #out, 2 do
    ids[#ids + 1] = out[i + 1]
    if out[i] == 'rescue' then
      local rescue = message_load(out[i + 1])
      for j = 1, #(rescue and rescue.owners or {}), 2 do ids[#ids + 1] = rescue.owners[j] end
    end
  end
  for _, id in ipairs(ids) do
    local m = message_load(id)
    if m and m.state == 'f' and m.cancel < word then
      m.cancel = word
      message_save(m)
    end
  end
end

-- Running steps keep their entities: they may still record their end. What hooks have received stays known
-- too: a resend of it is answered as the first sending was.
local function run_finish(run, status, retention)
  local entities, out = entities_all(run), call('HGETALL', run.keys.out)
  children_cancel(run, entities)
  deliveries_signal(run, out, 3)
  for i = 1, #out, 2 do
    local m = message_load(out[i + 1])
    if m and m.state ~= 'f' then message_delete(m) end
  end
  if #out > 0 then call('DEL', run.keys.out) end
  for _, found in ipairs(entities) do
    local id, entity = found[1], found[2]
    if entity.state ~= 'running' or entity.mode == 'child' then call('HDEL', run.keys.entities, id) end
  end
  if run.parked ~= '' then call('HDEL', K.parked, run.id) end
  run.status, run.finished, run.parked = status, true, ''
  run_save(run, { 'status', status, 'ended', int(now), 'parked', '' })
  call('ZREM', K.open, run.id)
  call('ZREMRANGEBYSCORE', K.done, '-inf', int(now))
  call('ZADD', K.done, int(now + retention), run.id)
  for _, key in pairs(run.keys) do call('PEXPIRE', key, int(retention)) end
  -- A hint to whoever waits for the result (see keys.py). pcall: a user may lack the right to publish, and
  -- nothing may fail after the first write.
  redis.pcall('PUBLISH', run.keys.run .. ':done', status)
end
