-- Starting and ending steps: the guards of the rules table, and what each end does to the entity.
--
-- Needs    messages runs entities rescue

local function step_new(detach)
  return {
    state = 'created', mode = '', owner = '', number = 0, slot = 0, mark = '', due = 0, starts = 0, errors = 0,
    crashes = 0, first = 0, detach = detach,
  }
end

-- ms until the delivery under which a step was started is over; 0: it is. A later one of its message has ended it.
local function owner_left(step, m)
  if not m or m.number > step.number then return 0 end
  return lease_left(m)
end

-- May this delivery start the step now? Answer and ms left (owned, too_early). When the owner's message was
-- handed out again, the step is for whoever holds it, under whichever of its messages: others leave it to them.
local function step_claim(run, step, id, number, consumer)
  if step.state == 'retrying' and step.due > now then return 'too_early', step.due - now end
  if step.state ~= 'running' then return 'ok', 0 end
  if step.mode == 'child' then return 'exists', 0 end
  if not INLINE_OWNERSHIP or (step.mode == 'queue' and not QUEUE_BACKSTOP) then return 'ok', 0 end
  if step.owner == id then
    if step.number < number then return 'ok', 0 end
    return 'owned', LEASE
  end
  local owner = message_load(step.owner)
  local left = lease_left(owner)
  if left == 0 or (owner.holder == consumer and owner_left(step, owner) == 0) then return 'ok', 0 end
  return 'owned', left
end

-- Write step_started and stamp the step. `step` is its entity; returns the epoch's slot.
local function step_start(run, id, step, mode, owner, number)
  local running, before = step.state == 'running', step.owner
  -- Taken over from an owner that is still alive (a switch is off): no crash.
  local crashed = running and (before == owner or owner_left(step, message_load(before)) == 0)
  local slot = log_append(run, 'ss', id, 0, '', owner .. ':' .. int(number) .. ':' .. mode)
  if running then rescue_owner(run, before, -1) end
  rescue_owner(run, owner, 1)
  step.state, step.mode, step.owner, step.number = 'running', mode, owner, number
  step.slot, step.mark, step.due, step.starts = slot, MARK, 0, step.starts + 1
  if crashed then step.crashes = step.crashes + 1 end
  if step.first == 0 then step.first = now end
  entity_put(run, id, step)
  return slot
end

-- Its execution is over and another one follows at `due`; `cause` says which count that goes to.
local function step_retry(run, id, step, due, cause)
  step.state, step.mode, step.owner, step.number = 'retrying', '', '', 0
  step.slot, step.mark, step.due = 0, '', due
  if cause == 'error' then step.errors = step.errors + 1 end
  if cause == 'crash' then step.crashes = step.crashes + 1 end
  entity_put(run, id, step)
end

-- The body has cancelled the call of a step that runs elsewhere: its worker hears of it on renewal, and if that
-- one has died, whoever holds its message next. A session's message may own several steps; the log tells it which
-- are not wanted any more.
local function step_stop(step)
  local m = step.mode ~= 'child' and message_load(step.owner)
  if m and m.cancel < 2 then
    m.cancel = step.mode == 'queue' and 2 or LOOK
    message_save(m)
  end
end

-- Ending an execution in any way releases its owner.
local function step_release(run, step)
  if step.state == 'running' and step.mode ~= 'child' then rescue_owner(run, step.owner, -1) end
end
