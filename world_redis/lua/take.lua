-- Hand out messages of one partition to one worker: the whole admission.
--
-- ARGV[3]  [1 consumer, 2 run budget, 3 step budget, 4 queues served, in order, 5 worker is empty 0/1]
-- Answers  ['ok', deliveries, ms until something falls due or lapses here, at most 1000, crowded 0/1, now]
--   delivery  [message id, number, kind, run id, key, queue, attempt, payload, news]
--   news      of a wake's first hand-out: '', or the packed [decisive events so far, entry of the last one]
--   crowded   a message on its third attempt or later waits for a worker that holds nothing else: it may be
--             what killed the earlier ones
--
-- Resend   hands out once more what the earlier sending of this very call did (by its mark), without news.
--
-- Order: lapsed deliveries are doubted, or handed out when they have been (their steps then have a living owner
-- again, and the rescue has nothing to do) · due messages become ready · then the ready ones, oldest first. With
-- a budget of 0 it only doubts and promotes, which is how a full worker still keeps time for the fleet.
-- A hand-out sets holder, number + 1 and the lease; that moment ends what the earlier delivery owned.
-- A wake that a rescue sends has the payload 'rescue'; every other wake but the first has none.
--
-- Prevents: a worker taking more than it can run; two holders of one delivery; a message in no place.
--
-- Needs    messages

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local CONSUMER, SERVED, EMPTY = A[1], A[4], A[5] == 1
local budget = { run = A[2], step = A[3] }
local SCAN, ALONE_FROM = 128, 3
local deliveries, crowded, alone = {}, 0, false

-- When to look again; nil when an owner is gone. One that has lapsed is not: its message is about to be handed
-- out again, and what it owned is recovered then.
local function owners_deadline(m)
  local earliest = nil
  for i = 1, #m.owners, 2 do
    local owner = message_load(m.owners[i])
    if not owner or owner.state ~= 'f' then return nil end
    local left = max(lease_left(owner), DOUBT)
    earliest = min(earliest or now + left, now + left)
  end
  return earliest
end

-- All owners are there: look again at their earliest deadline. Otherwise the run gets a wake, which looks at its
-- steps; the rescue stays armed while one of them runs. It keeps the wake it sent in `answer` and sends no
-- other while that one waits; a parked run gets none.
local function rescue_due(m)
  local keys = Q[m.queue]
  local deadline = owners_deadline(m)
  local last = not deadline and m.answer ~= '' and message_load(m.answer)
  local waits = last and last.state ~= 'f'
  if not deadline and not waits and call('HEXISTS', K.parked, m.run) == 0 then
    m.answer = message_publish('run', m.run, 'wake', m.queue, 'rescue', now).id
    message_save(m)
    call('HINCRBY', K.record, 'rescues', 1)
  end
  call('ZADD', keys.delayed, int(deadline or now + LEASE), m.id)
end

local function promote(queue)
  local keys = Q[queue]
  for _, id in ipairs(call('ZRANGEBYSCORE', keys.delayed, '-inf', int(now), 'LIMIT', 0, SCAN)) do
    local m = message_load(id)
    if not m then
      call('ZREM', keys.delayed, id)
    elseif m.kind == 'rescue' then
      rescue_due(m)
    else
      call('ZREM', keys.delayed, id)
      message_make_ready(m)
      message_save(m)
    end
  end
end

-- Budgets by kind; a poison suspect goes only to a worker that holds nothing else, and goes alone. That one
-- waits is told whatever the budget: a worker that makes room for it asks with none.
local function admit(m, attempt)
  local kind = m.kind == 'step' and 'step' or 'run'
  if alone then return false end
  local suspect = attempt >= ALONE_FROM
  if suspect and (not EMPTY or #deliveries > 0) then
    crowded = 1
    return false
  end
  if budget[kind] <= 0 then return false end
  alone = suspect
  budget[kind] = budget[kind] - 1
  return true
end

local function deliver(m, news)
  local payload = call('HGET', K.messages, m.id .. ':p') or ''
  deliveries[#deliveries + 1] = { m.id, m.number, m.kind, m.run, m.key, m.queue, m.attempt, payload, news }
end

-- Until the first transition under it, a delivery's `answer` is the mark of the call that handed it out; while a
-- message waits it is its news.
local function hand_out(m, attempt)
  local news = m.state == 'r' and m.answer or ''
  m.state, m.entry, m.number, m.attempt = 'f', '', m.number + 1, attempt
  m.holder, m.seq, m.answer = CONSUMER, 0, MARK
  lease_begin(m)
  message_save(m)
  deliver(m, news)
end

local function take_again(queue)
  for _, id in ipairs(call('ZRANGE', Q[queue].flight, 0, -1)) do
    local m = message_load(id)
    if m and m.holder == CONSUMER and m.seq == 0 and m.answer == MARK then
      local kind = m.kind == 'step' and 'step' or 'run'
      budget[kind] = budget[kind] - 1
      alone = alone or m.attempt >= ALONE_FROM
      lease_begin(m) -- its first answer was lost, and some of the lease with it
      message_save(m)
      deliver(m, '')
    end
  end
end

local function take_lapsed(queue)
  if amnesty > now then return end
  local passed = 0 -- lapsed ones that do not fit here stay in front
  repeat -- once also without a budget: whoever makes room must hear that a suspect waits for it
    local ids = call('ZRANGEBYSCORE', Q[queue].flight, '-inf', int(now), 'LIMIT', passed, SCAN)
    for _, id in ipairs(ids) do
      local m = message_load(id)
      if not m then
        call('ZREM', Q[queue].flight, id)
      elseif m.doubted == 0 then
        lease_doubt(m)
      elseif admit(m, m.attempt + 1) then
        hand_out(m, m.attempt + 1)
      else
        passed = passed + 1
      end
    end
  until #ids < SCAN or alone or budget.run + budget.step <= 0
end

-- Whatever is ready is on its first attempt (see message_return), so there is no suspect to pass over. No more is
-- read than fits: a long backlog costs a worker with one free slot no more than a short one.
local function take_stream(stream, kind)
  while budget[kind] > 0 and not alone do
    local fits = min(SCAN, budget[kind])
    local taken = {}
    for i, entry in ipairs(call('XRANGE', stream, '-', '+', 'COUNT', fits)) do
      taken[i] = entry[1]
      local m = message_load(entry[2][2])
      if m and m.entry == entry[1] then
        budget[kind] = budget[kind] - 1
        hand_out(m, 1)
      end
    end
    if #taken > 0 then call('XDEL', stream, unpack(taken)) end
    if #taken < fits then return end
  end
end

-- What is left rings, whether it was ready before or fell due now. What is handed out here does not: its ring
-- would only cost a take that finds nothing, just when the worker begins with what it got. The wake of a rescue
-- has rung already, and costs that take: a message has to be lost for one, and to publish it without a ring every
-- call of every script would make one more function.
local function take_ready(queue)
  local keys = Q[queue]
  take_stream(keys.ready, 'run')
  take_stream(keys.steps, 'step')
  if call('XLEN', keys.ready) + call('XLEN', keys.steps) > 0 then ring(queue) end
end

-- What lapsed and was not admitted is nobody's reason to come back at once.
local function next_due(queue)
  local due = call('ZRANGE', Q[queue].delayed, 0, 0, 'WITHSCORES')[2]
  local later = amnesty > now and '-inf' or '(' .. int(now)
  local deadline = call('ZRANGEBYSCORE', Q[queue].flight, later, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
  deadline = deadline and max(tonumber(deadline), amnesty)
  return min(due and tonumber(due) or 9e15, deadline or 9e15)
end

if RESENT then
  for _, queue in ipairs(SERVED) do take_again(queue) end
end
local soonest = now + 1000
for _, queue in ipairs(SERVED) do
  take_lapsed(queue)
  promote(queue)
  take_ready(queue)
  soonest = min(soonest, next_due(queue))
end
return pack({ 'ok', deliveries, max(0, soonest - now), crowded, now })
