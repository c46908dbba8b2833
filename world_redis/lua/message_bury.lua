-- A message nobody can use: kept as a dead letter, and what it belongs to is parked or failed, visibly.
--
-- runs     1: the run its envelope names
-- ARGV[3]  [1 run id, 2 message id, 3 number, 4 consumer, 5 reason, 6 detail, 7 step_failed's data]
-- Answers  [word]: ok · owned (the step runs under another live delivery: the message is dropped, the rescue
--          ensured) · superseded · lost · gone
--
-- Resend   the message is gone.
--
-- A run message parks its run; a step message fails its step (the failure is catchable in the body).
--
-- Needs    messages runs entities rescue steps park

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local held, m = message_held(A[2], A[3], A[4])
if held ~= 'ok' then return pack({ held }) end
local run = run_load(1, A[1])
local alive = run.status ~= 'absent' and not run.finished
local step = alive and m.kind == 'step' and entity_load(run, m.key)
local word = 'ok'
if step and step.state == 'running' and step_claim(run, step, m.id, m.number, m.holder) == 'owned' then word = 'owned' end

if word == 'ok' then
  call('XADD', K.dead, 'MAXLEN', '~', 10000, '*', 'message', m.id, 'kind', m.kind, 'run', m.run, 'key', m.key,
    'queue', m.queue, 'reason', A[5], 'detail', A[6], 'payload', call('HGET', K.messages, m.id .. ':p') or '')
end
message_settle(run.status ~= 'absent' and run or nil, m)
if word == 'owned' then rescue_ensure(run) end
if alive and word == 'ok' then
  if step and step.state ~= 'withdrawn' then
    step_release(run, step)
    log_append(run, 'sf', m.key, 0, A[7], '')
    entity_put(run, m.key, false)
    rescue_save(run)
    entities_save(run)
    run_save(run)
    wake(run)
  elseif m.kind == 'run' then
    run_park(run, A[5], A[6], '')
  end
end
return pack({ word })
