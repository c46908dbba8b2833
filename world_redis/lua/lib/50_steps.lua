-- Starting and ending steps: the guards of the rules table, and what each end does to the entity.

-- May this delivery start the step now? Answer and ms left (owned, too_early).
local function step_claim(run, step, id, number)
  local state = step[STEP.state]
  if state == 'retrying' and step[STEP.due] > now then return 'too_early', step[STEP.due] - now end
  if state ~= 'running' then return 'ok', 0 end
  if step[STEP.mode] == 'child' then return 'exists', 0 end
  if not INLINE_OWNERSHIP or (step[STEP.mode] == 'queue' and not QUEUE_BACKSTOP) then return 'ok', 0 end
  if step[STEP.owner] == id then
    if step[STEP.number] < number then return 'ok', 0 end
    return 'owned', LEASE
  end
  local left = lease_left(message_load(step[STEP.owner]))
  if left > 0 then return 'owned', left end
  return 'ok', 0
end

-- Write step_started and stamp the step. `step` is its entity; returns the epoch's slot.
local function step_start(run, id, step, mode, owner, number)
  local running, before = step[STEP.state] == 'running', step[STEP.owner]
  -- Taken over from an owner that is still alive (a switch is off): no crash.
  local crashed = running and (before == owner or lease_left(message_load(before)) == 0)
  local slot = log_append(run, 'ss', id, 0, '', owner .. ':' .. int(number) .. ':' .. mode)
  if running then rescue_owner(run, before, -1) end
  rescue_owner(run, owner, 1)
  entity_put(run, id, {
    'running', mode, owner, number, slot, MARK, 0, step[STEP.starts] + 1, step[STEP.errors],
    step[STEP.crashes] + (crashed and 1 or 0), step[STEP.first] > 0 and step[STEP.first] or now, step[STEP.detach],
  })
  return slot
end

-- The body has cancelled the call of a step that runs from the queue: its worker hears of it on renewal.
local function step_stop(step)
  local m = step[STEP.mode] == 'queue' and message_load(step[STEP.owner])
  if m and m.state == 'f' and m.number == step[STEP.number] then
    m.cancel = 2
    message_save(m)
  end
end

-- Ending an execution in any way releases its owner.
local function step_release(run, step)
  if step[STEP.state] == 'running' and step[STEP.mode] ~= 'child' then rescue_owner(run, step[STEP.owner], -1) end
end
