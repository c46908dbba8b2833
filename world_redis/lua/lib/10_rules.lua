-- Generated from events.py by `python -m world_redis.lua_rules`. Do not edit.
--
-- The state machine, a function for each column. Not a table: the server would build it anew at every call.

-- What the event moves; nil: no such code.
local function rule_subject(code)
  if code == 'rc' or code == 'rs' or code == 'rq' or code == 'ro' or code == 'rf' or code == 'rx' then return 'run' end
  if code == 'sc' or code == 'ss' or code == 'sr' or code == 'so' or code == 'sf' then return 'step' end
  if code == 'wc' or code == 'wo' then return 'wait' end
  if code == 'hc' or code == 'hr' or code == 'hd' or code == 'hx' then return 'hook' end
  if code == 'as' then return 'attr' end
  if code == 'pr' then return 'patch' end
end

-- Its state afterwards ('': as before).
local function rule_target(code)
  if code == 'rc' then return 'pending' end
  if code == 'rs' or code == 'ss' then return 'running' end
  if code == 'rq' or code == 'hr' then return '' end
  if code == 'ro' then return 'completed' end
  if code == 'rf' then return 'failed' end
  if code == 'rx' then return 'cancelled' end
  if code == 'sc' then return 'created' end
  if code == 'sr' then return 'retrying' end
  if code == 'wc' or code == 'hc' then return 'open' end
  return 'ended'
end

-- A further check when the state allows it.
local function rule_guard(code)
  if code == 'rq' then return 'once' end
  if code == 'ss' then return 'claim' end
  if code == 'sr' or code == 'so' or code == 'sf' then return 'epoch' end
  if code == 'wo' then return 'due' end
  if code == 'hr' then return 'resume' end
  return ''
end

-- What a finished run answers ('': judged by the subject's state).
local function rule_finished(code)
  if code == 'rc' or code == 'ro' or code == 'rf' or code == 'rx' or code == 'so' or code == 'sf' then return '' end
  return 'expired'
end

-- May a body observe it?
local function rule_decisive(code)
  return code == 'rq' or code == 'so' or code == 'sf' or code == 'wo' or code == 'hc' or code == 'hr' or code == 'hx'
end

-- What a writer is answered when the subject is in `state`.
local function rule_answer(code, state)
  if code == 'rc' then -- run_created
    if state == 'absent' then return 'ok' end
    return 'exists'
  elseif code == 'rs' then -- run_started
    if state == 'absent' then return 'not_found' end
    if state == 'pending' then return 'ok' end
    if state == 'running' then return 'exists' end
    return 'expired'
  elseif code == 'rq' then -- run_cancel_requested
    if state == 'absent' then return 'not_found' end
    if state == 'pending' or state == 'running' then return 'ok' end
    return 'expired'
  elseif code == 'ro' then -- run_completed
    if state == 'absent' then return 'not_found' end
    if state == 'pending' or state == 'running' then return 'ok' end
    return 'conflict'
  elseif code == 'rf' then -- run_failed
    if state == 'absent' then return 'not_found' end
    if state == 'pending' or state == 'running' then return 'ok' end
    return 'conflict'
  elseif code == 'rx' then -- run_cancelled
    if state == 'absent' then return 'not_found' end
    if state == 'pending' or state == 'running' then return 'ok' end
    if state == 'completed' or state == 'failed' then return 'conflict' end
    return 'exists'
  elseif code == 'sc' then -- step_created
    if state == 'absent' then return 'ok' end
    return 'exists'
  elseif code == 'ss' then -- step_started
    if state == 'absent' then return 'not_found' end
    if state == 'created' or state == 'running' or state == 'retrying' then return 'ok' end
    if state == 'withdrawn' then return 'gone' end
    return 'exists'
  elseif code == 'sr' then -- step_retrying
    if state == 'absent' then return 'not_found' end
    if state == 'created' or state == 'retrying' or state == 'withdrawn' then return 'superseded' end
    if state == 'running' then return 'ok' end
    return 'exists'
  elseif code == 'so' then -- step_completed
    if state == 'absent' then return 'not_found' end
    if state == 'created' or state == 'retrying' or state == 'withdrawn' then return 'superseded' end
    if state == 'running' then return 'ok' end
    return 'exists'
  elseif code == 'sf' then -- step_failed
    if state == 'absent' then return 'not_found' end
    if state == 'created' or state == 'running' or state == 'retrying' then return 'ok' end
    if state == 'withdrawn' then return 'superseded' end
    return 'exists'
  elseif code == 'wc' then -- wait_created
    if state == 'absent' then return 'ok' end
    return 'exists'
  elseif code == 'wo' then -- wait_completed
    if state == 'absent' then return 'not_found' end
    if state == 'open' then return 'ok' end
    return 'exists'
  elseif code == 'hc' then -- hook_created
    if state == 'absent' then return 'ok' end
    return 'exists'
  elseif code == 'hr' then -- hook_received
    if state == 'absent' then return 'not_found' end
    if state == 'open' then return 'ok' end
    return 'gone'
  elseif code == 'hd' then -- hook_disposed
    if state == 'absent' then return 'not_found' end
    if state == 'open' then return 'ok' end
    return 'exists'
  elseif code == 'hx' then -- hook_conflict
    if state == 'absent' then return 'ok' end
    return 'exists'
  elseif code == 'as' then -- attr_set
    if state == 'absent' then return 'ok' end
    return 'exists'
  elseif code == 'pr' then -- patch_recorded
    if state == 'absent' then return 'ok' end
    return 'exists'
  end
end
