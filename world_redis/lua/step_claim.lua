-- Messages of queued steps of one run were delivered: may they run here, now? Each is judged by itself.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 consumer, 3 list of [message id, number, step id]]
-- Answers  ['ok', run status, cancel requested 0/1, now, a claim for each]
--   claim  [word, epoch slot, ms left, starts, errors, crashes, first start ms]
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

local run = run_load(1, A[1])

local function judge(step, id, m)
  if run.status == 'absent' then return 'not_found', 0 end
  if run.finished then return rule_finished('ss'), 0 end
  local answer = rule_answer('ss', entity_state(run, id, step))
  if answer ~= 'ok' then return answer, 0 end
  return step_claim(run, step, m.id, m.number, m.holder)
end

local function refuse(m, answer, left)
  if answer == 'too_early' then
    message_displace(m)
    message_return(m, now + left)
    return
  end
  message_settle(run.status ~= 'absent' and run or nil, m)
  if answer == 'exists' then wake(run) end
  if answer == 'owned' then rescue_ensure(run) end
end

local claimed = {} -- message ids: two deliveries of one number, after a fail-over, are not two executions

-- Answer, epoch slot, ms left.
local function claim(step, id, message, number)
  local held, m = message_held(message, number, A[2])
  if held ~= 'ok' then return held, 0, 0 end
  if m.seq > 0 then -- a resend of this very claim, or a claim by somebody who lost count
    local recorded = unpack_value(m.answer)
    if m.seq ~= 1 or recorded[1] ~= MARK or claimed[m.id] then return 'lost', 0, 0 end
    claimed[m.id] = true
    return 'ok', recorded[2], 0
  end
  local answer, left = judge(step, id, m)
  if answer ~= 'ok' then
    refuse(m, answer, left)
    return answer, 0, left
  end
  local slot = step_start(run, id, step, 'queue', m.id, m.number)
  m.seq, m.answer = 1, pack({ MARK, slot })
  message_save(m)
  claimed[m.id] = true
  return 'ok', slot, 0
end

local claims = {}
for i, asked in ipairs(A[3]) do
  local step = run.status ~= 'absent' and entity_load(run, asked[3])
  local word, slot, left = claim(step, asked[3], asked[1], asked[2])
  local e = step or {}
  claims[i] = { word, slot, left, e.starts or 0, e.errors or 0, e.crashes or 0, e.first or 0 }
end
rescue_save(run)
entities_save(run)
run_save(run)
return pack({ 'ok', run.status, run.cancel == '1' and 1 or 0, now, claims })
