-- The open entities of a run as a session's dispatch needs them: what no log carries.

local function step_row(run, id, step)
  local owner = step[STEP.state] == 'running' and step[STEP.mode] ~= 'child' and message_load(step[STEP.owner]) or nil
  local left = lease_left(owner)
  local has_message = call('HEXISTS', run.keys.out, id) == 1
    and call('HEXISTS', K.messages, call('HGET', run.keys.out, id)) == 1
  return {
    id, step[STEP.state], step[STEP.mode], step[STEP.owner], step[STEP.number], left > 0 and 1 or 0, left,
    step[STEP.due], has_message and 1 or 0, step[STEP.slot], step[STEP.mark], step[STEP.starts],
    step[STEP.errors], step[STEP.crashes], step[STEP.first],
  }
end

local function table_of(run)
  local steps, waits, hooks = {}, {}, {}
  local all = call('HGETALL', run.keys.entities)
  for i = 1, #all, 2 do
    local id, kind = all[i], string.sub(all[i], 1, 1)
    if kind == 's' then
      steps[#steps + 1] = step_row(run, id, unpack_value(all[i + 1]))
    elseif kind == 'w' then
      waits[#waits + 1] = { id, unpack_value(all[i + 1])[2] }
    elseif kind == 'h' then
      hooks[#hooks + 1] = { id, unpack_value(all[i + 1])[2] }
    end
  end
  local timer = message_load(call('HGET', run.keys.out, 'timer'))
  local timer_due = timer and timer.state == 'd' and num(call('ZSCORE', Q[timer.queue].delayed, timer.id)) or 0
  if timer and timer.state == 'r' then timer_due = now end
  return { steps, waits, hooks, rescue_armed(run) and 1 or 0, timer_due }
end
