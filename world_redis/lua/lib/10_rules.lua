-- Generated from events.py by `python -m world_redis.lua_rules`. Do not edit.
-- code → the row of the state machine; finished '' means: judged by the subject's state.
-- A row is built when it is first asked for: a call needs three of them, and all would cost it 10 µs.

local RULES = setmetatable({}, { __index = function(rules, code)
  local row
  if code == 'rc' then -- run_created
    row = { subject = 'run', target = 'pending', guard = '', decisive = false, finished = '',
      answers = { absent = 'ok', pending = 'exists', running = 'exists', completed = 'exists', failed = 'exists', cancelled = 'exists' } }
  elseif code == 'rs' then -- run_started
    row = { subject = 'run', target = 'running', guard = '', decisive = false, finished = 'expired',
      answers = { absent = 'not_found', pending = 'ok', running = 'exists', completed = 'expired', failed = 'expired', cancelled = 'expired' } }
  elseif code == 'rq' then -- run_cancel_requested
    row = { subject = 'run', target = '', guard = 'once', decisive = true, finished = 'expired',
      answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'expired', failed = 'expired', cancelled = 'expired' } }
  elseif code == 'ro' then -- run_completed
    row = { subject = 'run', target = 'completed', guard = '', decisive = false, finished = '',
      answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'conflict', failed = 'conflict', cancelled = 'conflict' } }
  elseif code == 'rf' then -- run_failed
    row = { subject = 'run', target = 'failed', guard = '', decisive = false, finished = '',
      answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'conflict', failed = 'conflict', cancelled = 'conflict' } }
  elseif code == 'rx' then -- run_cancelled
    row = { subject = 'run', target = 'cancelled', guard = '', decisive = false, finished = '',
      answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'conflict', failed = 'conflict', cancelled = 'exists' } }
  elseif code == 'sc' then -- step_created
    row = { subject = 'step', target = 'created', guard = '', decisive = false, finished = 'expired',
      answers = { absent = 'ok', created = 'exists', running = 'exists', retrying = 'exists', withdrawn = 'exists', ended = 'exists' } }
  elseif code == 'ss' then -- step_started
    row = { subject = 'step', target = 'running', guard = 'claim', decisive = false, finished = 'expired',
      answers = { absent = 'not_found', created = 'ok', running = 'ok', retrying = 'ok', withdrawn = 'gone', ended = 'exists' } }
  elseif code == 'sr' then -- step_retrying
    row = { subject = 'step', target = 'retrying', guard = 'epoch', decisive = false, finished = 'expired',
      answers = { absent = 'not_found', created = 'superseded', running = 'ok', retrying = 'superseded', withdrawn = 'superseded', ended = 'exists' } }
  elseif code == 'so' then -- step_completed
    row = { subject = 'step', target = 'ended', guard = 'epoch', decisive = true, finished = '',
      answers = { absent = 'not_found', created = 'superseded', running = 'ok', retrying = 'superseded', withdrawn = 'superseded', ended = 'exists' } }
  elseif code == 'sf' then -- step_failed
    row = { subject = 'step', target = 'ended', guard = 'epoch', decisive = true, finished = '',
      answers = { absent = 'not_found', created = 'ok', running = 'ok', retrying = 'ok', withdrawn = 'superseded', ended = 'exists' } }
  elseif code == 'wc' then -- wait_created
    row = { subject = 'wait', target = 'open', guard = '', decisive = false, finished = 'expired',
      answers = { absent = 'ok', open = 'exists', ended = 'exists' } }
  elseif code == 'wo' then -- wait_completed
    row = { subject = 'wait', target = 'ended', guard = 'due', decisive = true, finished = 'expired',
      answers = { absent = 'not_found', open = 'ok', ended = 'exists' } }
  elseif code == 'hc' then -- hook_created
    row = { subject = 'hook', target = 'open', guard = '', decisive = true, finished = 'expired',
      answers = { absent = 'ok', open = 'exists', ended = 'exists' } }
  elseif code == 'hr' then -- hook_received
    row = { subject = 'hook', target = '', guard = 'resume', decisive = true, finished = 'expired',
      answers = { absent = 'not_found', open = 'ok', ended = 'gone' } }
  elseif code == 'hd' then -- hook_disposed
    row = { subject = 'hook', target = 'ended', guard = '', decisive = false, finished = 'expired',
      answers = { absent = 'not_found', open = 'ok', ended = 'exists' } }
  elseif code == 'hx' then -- hook_conflict
    row = { subject = 'hook', target = 'ended', guard = '', decisive = true, finished = 'expired',
      answers = { absent = 'ok', open = 'exists', ended = 'exists' } }
  elseif code == 'as' then -- attr_set
    row = { subject = 'attr', target = 'ended', guard = '', decisive = false, finished = 'expired',
      answers = { absent = 'ok', ended = 'exists' } }
  elseif code == 'pr' then -- patch_recorded
    row = { subject = 'patch', target = 'ended', guard = '', decisive = false, finished = 'expired',
      answers = { absent = 'ok', ended = 'exists' } }
  end
  rules[code] = row
  return row
end })
