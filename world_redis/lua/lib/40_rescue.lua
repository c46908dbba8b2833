-- The rescue: one delayed entry per run while a step of it runs, never handed out. It names the messages
-- that own the running steps, so that `take` can tell without a key of the run whether all of them are
-- still held: then it moves to their earliest deadline; otherwise it sends the run a wake and stays armed.

local function rescue_owner(run, owner, delta)
  run.owners[owner] = (run.owners[owner] or 0) + delta
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
  local owners, counts, order = {}, {}, {}
  for i = 1, #(m and m.owners or {}), 2 do
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
    message_withdraw(run, 'rescue')
    return
  end
  if not m then
    m = message_publish('rescue', run.id, 'rescue', run.queue, '', now + LEASE)
    call('HSET', run.keys.out, 'rescue', m.id)
    run.armed = 1
  end
  m.owners = owners
  message_save(m)
end

local function rescue_armed(run)
  return call('HEXISTS', run.keys.out, 'rescue') == 1
end
