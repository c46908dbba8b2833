-- Generated from events.py by `python -m world_redis.lua_rules`. Do not edit.
-- code → the row of the state machine; finished '' means: judged by the subject's state.

local RULES = {
  rc = { subject = 'run', target = 'pending', guard = '', decisive = false, finished = '', answers = { absent = 'ok', pending = 'exists', running = 'exists', completed = 'exists', failed = 'exists', cancelled = 'exists' } }, -- run_created
  rs = { subject = 'run', target = 'running', guard = '', decisive = false, finished = 'expired', answers = { absent = 'not_found', pending = 'ok', running = 'exists', completed = 'expired', failed = 'expired', cancelled = 'expired' } }, -- run_started
  rq = { subject = 'run', target = '', guard = 'once', decisive = true, finished = 'expired', answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'expired', failed = 'expired', cancelled = 'expired' } }, -- run_cancel_requested
  ro = { subject = 'run', target = 'completed', guard = '', decisive = false, finished = '', answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'conflict', failed = 'conflict', cancelled = 'conflict' } }, -- run_completed
  rf = { subject = 'run', target = 'failed', guard = '', decisive = false, finished = '', answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'conflict', failed = 'conflict', cancelled = 'conflict' } }, -- run_failed
  rx = { subject = 'run', target = 'cancelled', guard = '', decisive = false, finished = '', answers = { absent = 'not_found', pending = 'ok', running = 'ok', completed = 'conflict', failed = 'conflict', cancelled = 'exists' } }, -- run_cancelled
  sc = { subject = 'step', target = 'created', guard = '', decisive = false, finished = 'expired', answers = { absent = 'ok', created = 'exists', running = 'exists', retrying = 'exists', withdrawn = 'exists', ended = 'exists' } }, -- step_created
  ss = { subject = 'step', target = 'running', guard = 'claim', decisive = false, finished = 'expired', answers = { absent = 'not_found', created = 'ok', running = 'ok', retrying = 'ok', withdrawn = 'gone', ended = 'exists' } }, -- step_started
  sr = { subject = 'step', target = 'retrying', guard = 'epoch', decisive = false, finished = 'expired', answers = { absent = 'not_found', created = 'superseded', running = 'ok', retrying = 'superseded', withdrawn = 'superseded', ended = 'exists' } }, -- step_retrying
  so = { subject = 'step', target = 'ended', guard = 'epoch', decisive = true, finished = '', answers = { absent = 'not_found', created = 'superseded', running = 'ok', retrying = 'superseded', withdrawn = 'superseded', ended = 'exists' } }, -- step_completed
  sf = { subject = 'step', target = 'ended', guard = 'epoch', decisive = true, finished = '', answers = { absent = 'not_found', created = 'superseded', running = 'ok', retrying = 'superseded', withdrawn = 'superseded', ended = 'exists' } }, -- step_failed
  wc = { subject = 'wait', target = 'open', guard = '', decisive = false, finished = 'expired', answers = { absent = 'ok', open = 'exists', ended = 'exists' } }, -- wait_created
  wo = { subject = 'wait', target = 'ended', guard = 'due', decisive = true, finished = 'expired', answers = { absent = 'not_found', open = 'ok', ended = 'exists' } }, -- wait_completed
  hc = { subject = 'hook', target = 'open', guard = '', decisive = true, finished = 'expired', answers = { absent = 'ok', open = 'exists', ended = 'exists' } }, -- hook_created
  hr = { subject = 'hook', target = '', guard = 'resume', decisive = true, finished = 'expired', answers = { absent = 'not_found', open = 'ok', ended = 'gone' } }, -- hook_received
  hd = { subject = 'hook', target = 'ended', guard = '', decisive = false, finished = 'expired', answers = { absent = 'not_found', open = 'ok', ended = 'exists' } }, -- hook_disposed
  hx = { subject = 'hook', target = 'ended', guard = '', decisive = true, finished = 'expired', answers = { absent = 'ok', open = 'exists', ended = 'exists' } }, -- hook_conflict
  as = { subject = 'attr', target = '', guard = '', decisive = false, finished = 'expired', answers = { absent = 'ok' } }, -- attr_set
  pr = { subject = 'patch', target = 'ended', guard = '', decisive = false, finished = 'expired', answers = { absent = 'ok', ended = 'exists' } }, -- patch_recorded
}
