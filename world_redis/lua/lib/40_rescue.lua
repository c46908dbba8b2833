-- The rescue: one delayed entry per run while a step of it runs, never handed out. It names the messages
-- that own the running steps, so that `take` can tell without a key of the run whether all of them are
-- still held: then it moves to their earliest deadline; otherwise it sends the run a wake and stays armed.
--
-- Needs    messages runs entities

local function rescue_owner(run, owner, delta)
  run.owners[owner] = (run.owners[owner] or 0) + delta
end

local function rescue_arm(run, counts)
  local owners = {}
  for owner, count in pairs(counts) do
    if count > 0 then owners[#owners + 1] = owner; owners[#owners + 1] = count end
  end
  if #owners == 0 then return end
  local m = message_publish('rescue', run.id, 'rescue', run_field(run, 'queue'), '', now + LEASE, owners)
  call('HSET', run.keys.out, 'rescue', m.id)
end

-- Carry out the changes gathered by rescue_owner. Starting the next inline step when one ends under the
-- same message changes nothing and costs nothing.
local function rescue_save(run)
  local changes = {}
  for owner, delta in pairs(run.owners) do
    if delta ~= 0 then changes[owner] = delta end
  end
  run.owners = {}
  if next(changes) == nil then return end
  local m = message_load(call('HGET', run.keys.out, 'rescue'))
  if not m then return rescue_arm(run, changes) end
  local owners, counts, order = {}, {}, {}
  for i = 1, #m.owners, 2 do
    order[#order + 1] = m.owners[i]
    counts[m.owners[i]] = m.owners[i + 1]
  end
  for owner, delta in pairs(changes) do
    if not counts[owner] then order[#order + 1] = owner end
    counts[owner] = (counts[owner] or 0) + delta
  end
  for _, owner in ipairs(order) do
    if counts[owner] > 0 then owners[#owners + 1] = owner; owners[#owners + 1] = counts[owner] end
  end
  if #owners == 0 then
    message_delete(m) -- never in flight
    call('HDEL', run.keys.out, 'rescue')
    return
  end
  m.owners = owners
  message_save(m)
end

local function rescue_armed(run)
  local id = call('HGET', run.keys.out, 'rescue')
  return id and call('HEXISTS', K.messages, id) == 1
end

-- Arm a rescue that should be there and is not: it was lost with its record, which the entities replace.
local function rescue_ensure(run)
  if run.finished or rescue_armed(run) then return end
  entities_save(run)
  run.owners = {}
  local counts = {}
  for _, found in ipairs(entities_all(run)) do
    local step = found[2]
    if step.state == 'running' and step.mode ~= 'child' then counts[step.owner] = (counts[step.owner] or 0) + 1 end
  end
  if next(counts) ~= nil then rescue_arm(run, counts) end
end
