-- The open entities of a run as a session's dispatch needs them: what no log carries.
--
-- Needs    messages entities rescue

local function step_row(run, id, step)
  local owner = step.state == 'running' and step.mode ~= 'child' and message_load(step.owner) or nil
  local left = lease_left(owner)
  local has_message = call('HEXISTS', run.keys.out, id) == 1
    and call('HEXISTS', K.messages, call('HGET', run.keys.out, id)) == 1
  return {
    id, step.state, step.mode, step.owner, step.number, left > 0 and 1 or 0, left, step.due, has_message and 1 or 0,
    step.slot, step.mark, step.starts, step.errors, step.crashes, step.first,
  }
end

local function table_of(run)
  local steps, waits, hooks = {}, {}, {}
  for _, found in ipairs(entities_all(run)) do
    local id, entity = found[1], found[2]
    local kind = string.sub(id, 1, 1)
    if kind == 's' then
      steps[#steps + 1] = step_row(run, id, entity)
    elseif kind == 'w' then
      waits[#waits + 1] = { id, entity.due }
    else
      hooks[#hooks + 1] = { id, entity.token }
    end
  end
  return { steps, waits, hooks, rescue_armed(run) and 1 or 0 }
end
