-- One transition of a run: facts, decisions, sends, withdrawals and settles in one call.
--
-- runs     1: the run; then each child to create, in order; last its parent, when A[14] is 1
-- ARGV[3]  [1 run id, 2 carrier [message id or '', number, holder], 3 seq, 4 seen, 5 position or [],
--           6 advanced, 7 facts, 8 decisions, 9 children, 10 sends, 11 withdraws, 12 settles, 13 table 0/1,
--           14 has parent, 15 max events, 16 retention ms, 17 parent's event data]
--   fact      [code, id, data, at, epoch slot, epoch mark], of a retry also [send or [], due_in, cause]
--   decision  [code, id, data, mode, due_in, due_at, token, detach]; what is empty at its end is left out
--   child     [run id, step, field list, data, queue, payload]   step '': the run this one continues as
--   send      [kind, key, queue, payload, due_in, due_at]
--   settle    [message id, number]
-- Facts are ends of steps and waits (sr so sf wo); decisions are everything else a body causes (rs ro rf rx
-- sc ss wc hc hd hx as pr). Cancel requests and hook payloads have scripts of their own.
-- `advanced`: the body has seen the facts, or (without any) an event that only its wake has told; the position
-- is the one they follow, or that event's.
--
-- Order: the carrier's fence → facts (each by its own entity and epoch) → decisions, all or none →
-- settles and withdrawals → sends. Nothing that can fail comes after the first write.
--
-- Answers  ok          all of it is written (`unsettled`: all but the settles)
--          stale       the position differs and the decisions bet on it, or the log does not hold it, or the
--                      run's end was decided without having seen all
--          conflict    a decision was refused; `decisions` says which and why
--          superseded, lost, gone   the carrier is not the holder; `gone` answers a resend that settled
--          expired     the run is finished      invalid   the log is full
--          not_found   no such run: what this writer holds is settled
-- Whatever the answer, facts are judged and written, and the events after `seen` come along: those of others
-- as the log has them, those written here as [place in facts and decisions, at, mark, extra]. They are the last
-- of the log; what the writer has sent is not sent back.
--
-- Resend   (message, number, seq): the recorded answer; once the message is settled, `gone`. Without a message:
--          by the state and epoch of each fact's entity.
--
-- Prevents: a step recorded but its successor not queued; a result lost because the world moved on; a run
-- message settled while a decisive event exists that its body has not seen. Without a position a run message
-- is settled on a finished or parked run only.
--
-- Needs    rules messages runs entities rescue steps

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local FACTS, DECISIONS, CHILDREN, SENDS, WITHDRAWS, SETTLES = A[7], A[8], A[9], A[10], A[11], A[12]
local run = run_load(1, A[1])

-- The carrier: is its delivery the holder?
local held, carrier = 'none', nil
if A[2][1] ~= '' then held, carrier = message_held(A[2][1], A[2][2], A[2][3]) end

-- Which of the named deliveries does this writer really hold? Joined ones it lost are skipped.
local function settles_held()
  local found, of_run = {}, false
  for _, settle in ipairs(SETTLES) do
    local word, m = held, carrier
    if settle[1] ~= A[2][1] or settle[2] ~= A[2][2] then word, m = message_held(settle[1], settle[2], A[2][3]) end
    if word == 'ok' and m.run == run.id then
      found[#found + 1] = m
      if m.kind == 'run' then of_run = true end
    end
  end
  return found, of_run
end

local settling, settles_run = settles_held()
if run.status == 'absent' then -- expired, or never there: its messages would come back for ever
  for _, m in ipairs(settling) do message_settle(nil, m) end
  return pack({ 'not_found' })
end

local function is_fact(code)
  return code == 'sr' or code == 'so' or code == 'sf' or code == 'wo'
end

local function is_end(code)
  return code == 'ro' or code == 'rf' or code == 'rx'
end

local function has_own_script(code)
  return code == 'rc' or code == 'rq' or code == 'hr'
end

local child_of = {}
for i, child in ipairs(CHILDREN) do child_of[child[2]] = { child = child, index = i } end

-- A writer's bug must show before the first write, not in the middle.
local function well_formed()
  for _, fact in ipairs(FACTS) do
    if not is_fact(fact[1]) or not string.find(fact[2], '^[sw]%d+$') then return false end
  end
  for _, decision in ipairs(DECISIONS) do
    local code, id = decision[1], decision[2]
    local subject = rule_subject(code)
    if not subject or is_fact(code) or has_own_script(code) then return false end
    -- A short id begins as the word for its kind does.
    if subject ~= 'run' and string.match(id, '^(%l)%d+$') ~= string.sub(subject, 1, 1) then return false end
    if decision[4] == 'child' and not child_of[id] then return false end
    if is_end(code) and A[14] ~= 1 and run_field(run, 'parent') ~= '' then return false end
  end
  return true
end
if not well_formed() then return redis.error_reply('ERR malformed transition') end

local fact_answers, decision_answers, starts = {}, {}, {}

local function table_told()
  -- Needs    table

  return table_of(run)
end

local function reply(word, unsettled)
  local before = run.slot - #run.written
  local events, more = events_after(run, A[4], before)
  local written = {}
  if not more then
    for i = max(1, A[4] - before + 1), #run.written do written[#written + 1] = run.written[i] end
  end
  return pack({
    word, unsettled and 1 or 0, fact_answers, decision_answers, starts, now, run.slot,
    { run.count, run.pslot, run.pmark }, run.status, run.cancel == '1' and 1 or 0, events, more and 1 or 0,
    A[13] == 1 and table_told() or 0, run.parked, written,
  })
end

-- Is this the next transition under the carrier, or the last one once more?
if held == 'ok' and A[3] ~= carrier.seq + 1 then
  local recorded = A[3] == carrier.seq and carrier.seq > 0 and unpack_value(carrier.answer)
  if recorded and recorded[1] == MARK then
    fact_answers, decision_answers, starts = recorded[4], recorded[5], recorded[6]
    return reply(recorded[2], recorded[3] == 1)
  end
  held = 'lost'
end
local asks = #DECISIONS + #SENDS + #WITHDRAWS + #SETTLES > 0
local equal = #A[5] == 3 and position_equals(run, A[5])
local passed = #A[5] ~= 3 or #DECISIONS + #SENDS + #WITHDRAWS == 0 or position_passed(run, A[5])

-- Facts -----------------------------------------------------------------------------------------------

local function fact_judge(fact)
  local code, id = fact[1], fact[2]
  if run.finished and rule_finished(code) ~= '' then return rule_finished(code) end
  local entity = entity_load(run, id)
  local answer = rule_answer(code, entity_state(run, id, entity))
  if answer ~= 'ok' then return answer end
  local guard = rule_guard(code)
  if guard == 'epoch' then
    local same = entity.slot == fact[5] and entity.mark == fact[6]
    if not same or entity.mode == 'child' then
      if code == 'sf' and fact[5] == 0 then step_stop(entity) end
      return 'superseded'
    end
  end
  if guard == 'due' and entity.due > now then return 'too_early' end
  return 'ok', entity
end

local function send_due(due_in, due_at)
  return due_at > 0 and due_at or now + due_in
end

-- Of the event just written, its writer is told which of its parts it records.
local function written_for(place)
  run.written[#run.written][1] = place
end

-- Returns the retry's message to send once settles are done: its key may still be this delivery's own.
local function fact_write(fact, entity)
  local code, id, at = fact[1], fact[2], fact[4]
  if code == 'wo' then
    at = max(at, entity.due)
  else
    if entity.state ~= 'running' then message_withdraw(run, id) end
    step_release(run, entity)
    if code == 'sr' then
      local send, due = fact[7], now + fact[8]
      step_retry(run, id, entity, due, fact[9])
      log_append(run, code, id, at, fact[3], int(due))
      return #send > 0 and { send[1], send[2], send[3], send[4], 0, due } or nil
    end
  end
  entity_put(run, id, false)
  log_append(run, code, id, at, fact[3], '')
end

local accepted, retries = true, {}
for i, fact in ipairs(FACTS) do
  local answer, entity = fact_judge(fact)
  fact_answers[i] = answer
  if answer == 'ok' then
    retries[#retries + 1] = fact_write(fact, entity)
    written_for(i)
  elseif answer ~= 'exists' or A[6] == 1 then
    accepted = false
  end
end
local facts_decided = run_decided(run)

-- Decisions: judged on a copy, so that nothing of a refused batch remains ------------------------------

local plan = {} -- id → state after the decisions judged so far

local function decision_judge(decision)
  local code, id = decision[1], decision[2]
  if run.finished and rule_finished(code) ~= '' then return rule_finished(code) end
  if rule_subject(code) == 'run' then
    if code == 'rs' and plan[''] then return 'exists' end
    plan[''] = code == 'rs' or plan['']
    return rule_answer(code, run.status)
  end
  local entity = entity_load(run, id)
  local answer = rule_answer(code, plan[id] or entity_state(run, id, entity))
  if answer == 'ok' and rule_guard(code) == 'claim' and entity and not plan[id] then
    answer = step_claim(run, entity, A[2][1], A[2][2], A[2][3])
  end
  if answer == 'ok' and rule_target(code) ~= '' then plan[id] = rule_target(code) end
  return answer
end

-- 'exists' is a skip for whatever may repeat; a start that somebody else made is a refusal.
local function decisions_judge()
  local word, terminal = 'ok', nil
  for i, decision in ipairs(DECISIONS) do
    local answer = decision_judge(decision)
    decision_answers[i] = answer
    if answer == 'expired' then
      word = 'expired'
    elseif answer ~= 'ok' and (answer ~= 'exists' or decision[1] == 'ss' or is_end(decision[1])) and word == 'ok' then
      word = 'conflict'
    end
    if is_end(decision[1]) then terminal = i end
  end
  return word, terminal
end

local function decision_write(decision)
  local code, id, data = decision[1], decision[2], decision[3]
  if rule_answer(code, 'absent') == 'ok' then entity_count(run, id) end
  if code == 'sc' then
    local step = step_new(decision[8] or 0)
    if decision[4] == 'child' then
      step.state, step.mode, step.owner = 'running', 'child', child_of[id].child[1]
    end
    entity_put(run, id, step)
    log_append(run, code, id, 0, data, step.owner)
  elseif code == 'ss' then
    local step = entity_load(run, id)
    starts[#starts + 1] = { id, step_start(run, id, step, decision[4], A[2][1], A[2][2]), step.errors, step.first }
  elseif code == 'wc' then
    local due = send_due(decision[5] or 0, decision[6] or 0)
    entity_put(run, id, { state = 'open', due = due })
    log_append(run, code, id, 0, data, int(due))
  elseif code == 'hc' then
    entity_put(run, id, { state = 'open', token = decision[7] or '' })
    log_append(run, code, id, 0, data, decision[7] or '')
  elseif code == 'hd' then
    entity_put(run, id, false)
    log_append(run, code, id, 0, data, '')
  elseif code == 'rs' then
    run.status = 'running'
    call('HSET', run.keys.run, 'status', 'running', 'started', int(now))
    log_append(run, code, '', 0, data, '')
  else
    log_append(run, code, id, 0, data, '')
  end
end

local function child_create(index, child)
  local born = run_load(1 + index, child[1])
  if born.status ~= 'absent' then return end
  run_create(born, child[3], child[4])
  message_ensure(born, 'run', 'wake', child[5], child[6], now)
end

-- Only for a step this transition created: a child that has come and gone is not started twice.
local function children_create()
  local created = { [''] = true }
  for i, decision in ipairs(DECISIONS) do
    if decision[1] == 'sc' and decision_answers[i] == 'ok' then created[decision[2]] = true end
  end
  for i, child in ipairs(CHILDREN) do
    if created[child[2]] then child_create(i, child) end
  end
end

local word, unsettled, terminal = 'ok', false, nil
if held ~= 'ok' and (asks or held ~= 'none') then
  word = held == 'none' and 'superseded' or held
elseif run.finished then
  decisions_judge()
  word = (#DECISIONS > 0 or not accepted) and 'expired' or 'ok'
elseif not accepted or (A[6] == 1 and not equal) or not passed then
  word = 'stale'
elseif #DECISIONS > 0 then
  word, terminal = decisions_judge()
  if word == 'ok' and not terminal and run.slot + #DECISIONS > A[15] then word = 'invalid' end
end

for _, decision in ipairs(DECISIONS) do -- a patch bets that nothing of its run follows in the log
  if decision[1] == 'pr' and word == 'ok' and not equal then word = 'stale' end
end

local seen_all = equal and (A[6] == 1 or not facts_decided)
for i, decision in ipairs(DECISIONS) do
  if decision_answers[i] == 'ok' and rule_decisive(decision[1]) then seen_all = false end
end
local fenced = not run.finished and run.parked == ''
if word == 'ok' and terminal and not seen_all then word = 'stale' end
if word == 'ok' and settles_run and fenced and not seen_all then unsettled = true end

local kept = carrier -- the carrier, unless it is settled here
local rested = false -- a pass was settled whose body has seen everything, this transition's own events too
local function deliveries_settle()
  for _, m in ipairs(settling) do
    if m.kind ~= 'run' or not unsettled then
      message_settle(run, m)
      if carrier and m.id == carrier.id then kept = nil end
    end
  end
  if settles_run and seen_all and not unsettled and not run.finished then
    rested = true
    call('HSET', run.keys.run, 'settled', run.count .. ':' .. run.pslot .. ':' .. run.pmark)
  end
end

local function withdraws_write()
  for _, key in ipairs(WITHDRAWS) do
    local kind = string.match(key, '^([sw])%d+$')
    local entity = kind and entity_load(run, key)
    if kind == 's' and entity and (entity.state == 'created' or entity.state == 'retrying') then
      entity.state = 'withdrawn'
      entity_put(run, key, entity)
      message_withdraw(run, key)
    elseif kind == 'w' and entity then
      entity_put(run, key, false)
    elseif key == 'timer' then
      message_withdraw(run, key)
    end
  end
end

if run.finished and held == 'ok' then
  deliveries_settle() -- whatever arrives for a finished run is settled with its answer
elseif word == 'ok' then
  deliveries_settle()
  withdraws_write()
  for i, decision in ipairs(DECISIONS) do
    if decision_answers[i] == 'ok' and not is_end(decision[1]) then
      decision_write(decision)
      written_for(#FACTS + i)
    end
  end
  children_create()
end

local function run_end()
  -- Needs    finish

  local code, data = DECISIONS[terminal][1], DECISIONS[terminal][3]
  local successor = child_of[''] and child_of[''].child[1] or ''
  log_append(run, code, '', 0, data, successor)
  written_for(#FACTS + terminal)
  local parent = A[14] == 1 and run_load(1 + #CHILDREN + 1, run_field(run, 'parent')) or nil
  run_finish(run, rule_target(code), A[16])
  if successor ~= '' then
    call('HSET', run.keys.run, 'continued_to', successor)
    parent_move(run, parent, successor)
  else
    parent_notify(run, parent, code == 'ro' and 'so' or 'sf', A[17])
  end
end

-- Rescue counts first: a message withdrawn at the run's end must carry them no longer.
if not run.finished then rescue_save(run) end
entities_save(run)
if word == 'ok' and terminal then run_end() else run_save(run) end

local function send_ensure(send, due)
  if send[1] == 'rescue' then return rescue_ensure(run) end
  local step = send[1] == 'step' and entity_load(run, send[2])
  local waits = step and step.state ~= 'withdrawn' and step.mode ~= 'child'
  if send[1] == 'step' and not waits then return end
  if send[1] ~= 'step' and run.parked ~= '' then return end -- a parked run sends no wakes
  message_ensure(run, send[1], send[2], send[3], send[4], due)
end

if not run.finished then
  for _, send in ipairs(retries) do send_ensure(send, send[6]) end
  if word == 'ok' then
    for _, send in ipairs(SENDS) do send_ensure(send, send_due(send[5], send[6])) end
    if carrier and carrier.kind == 'run' and run.refused_since ~= '' and not unsettled then
      call('HDEL', run.keys.run, 'refused_since', 'refused_by')
    end
  end
  -- The wake rule: whoever appends a decisive event ensures the run's wake, unless it holds a run message
  -- of this run and leaves it unsettled, or has just settled one with a body that saw the event.
  local awake = held == 'ok' and kept and kept.kind == 'run' and kept.run == run.id
  if run_decided(run) and not awake and not rested then wake(run) end
end

if kept and held == 'ok' then
  if run.finished then kept = message_load(kept.id) end -- the end was signalled to it
  if kept.cancel == LOOK then kept.cancel = run.cancel == '1' and 1 or 0 end -- it reads the log now
  kept.seq = A[3]
  kept.answer = pack({ MARK, word, unsettled and 1 or 0, fact_answers, decision_answers, starts })
  message_save(kept)
end
return reply(word, unsettled)
