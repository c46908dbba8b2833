-- A queued step's message was delivered: may its body run here, now?
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 message id, 3 number, 4 consumer, 5 step id]
-- Answers  [word, epoch slot, ms left, starts, errors, crashes, first start ms, run status, cancel requested 0/1, now]
--   ok          step_started is written and stamped with this delivery; the rescue is armed
--   owned       it runs under another live delivery: this message is settled, the rescue ensured
--   exists      the step has ended: the run's wake is ensured, this message settled
--   expired     the run is finished; gone: the step was withdrawn; not_found: no such step or run: settled
--   too_early   a retry before its due time: this message is moved there
--   superseded, lost   this delivery is not the holder
--
-- Resend   the mark recorded on the delivery: the same epoch; a refused claim has settled or moved the message:
--          `gone` or `superseded`.
--
-- Prevents: a claim that is refused and a message that is lost with it; a duplicate that runs.
--
-- Needs    rules messages runs entities rescue steps

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run, id = run_load(1, A[1]), A[5]
local held, m = message_held(A[2], A[3], A[4])
local step = run.status ~= 'absent' and entity_load(run, id)

local function reply(word, slot, left)
  local e = step or {}
  return pack({
    word, slot or 0, left or 0, e.starts or 0, e.errors or 0, e.crashes or 0,
    e.first or 0, run.status, run.cancel == '1' and 1 or 0, now,
  })
end

if held ~= 'ok' then return reply(held) end
if m.seq > 0 then -- a resend of this very claim, or a claim by somebody who lost count
  local recorded = unpack_value(m.answer)
  if m.seq == 1 and recorded[1] == MARK then return reply('ok', recorded[2]) end
  return reply('lost')
end

local answer, left = nil, 0
if run.status == 'absent' then
  answer = 'not_found'
elseif run.finished then
  answer = rule_finished('ss')
else
  answer = rule_answer('ss', entity_state(run, id, step))
  if answer == 'ok' then answer, left = step_claim(run, step, m.id, m.number, m.holder) end
end

if answer == 'too_early' then
  message_displace(m)
  message_return(m, now + left)
  return reply(answer, 0, left)
elseif answer ~= 'ok' then
  message_settle(run.status ~= 'absent' and run or nil, m)
  if answer == 'exists' then wake(run) end
  if answer == 'owned' then rescue_ensure(run) end
  return reply(answer, 0, left)
end

local slot = step_start(run, id, step, 'queue', m.id, m.number)
m.seq, m.answer = 1, pack({ MARK, slot })
message_save(m)
rescue_save(run)
entities_save(run)
run_save(run)
return reply('ok', slot)
