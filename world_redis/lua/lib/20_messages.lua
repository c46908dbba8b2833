-- Messages: a header and a payload in `messages`, and one place of waiting: ready, delayed or in flight.
--
-- state         'r' ready, 'd' delayed, 'f' in flight; `entry`, while ready, is its id in the stream
-- number        hand-outs so far; attempt: those in a row that nobody ended
-- seq, answer   of the present delivery: its last transition, and what that was answered. Before the first one
--               `answer` is the mark of the call that handed the message out. A rescue's is the wake it sent last,
--               that of a wake not handed out yet is its news (see 30_runs)
-- cancel        what a renewal tells the holder: 1 the run was asked to cancel, 2 stop this step, 3 the run is over,
--               -1 (LOOK) read the log, until it has
-- owners        of a rescue: message id, how many running steps it owns, and so on
--
-- A delivery's lease has two halves. Its deadline in `flight` is that of the first: renewing or handing it out
-- sets it half a lease ahead. When it passes, the delivery is *doubted* for the second half, in which a holder
-- that lives renews it (it does so every third of a lease); only then is it handed out again. So a clock that
-- jumps, or a server that hung for an hour, robs nobody who still works.

local LOOK = -1 -- below all others, which tell more: whoever does not know it passes it over
local minted = 0

local function message_load(id)
  local raw = id and call('HGET', K.messages, id)
  if not raw then return nil end
  local _, kind, run, key, queue, state, entry, number, attempt, holder, seq, answer, published, cancel, owners,
    doubted = unpack_list(raw, 15)
  return {
    id = id, kind = kind, run = run, key = key, queue = queue, state = state, entry = entry, number = number,
    attempt = attempt, holder = holder, seq = seq, answer = answer, published = published, cancel = cancel,
    owners = owners, doubted = doubted,
  }
end

-- `...`: other fields of `messages` to write with it.
local function message_save(m, ...)
  call('HSET', K.messages, m.id, pack({
    m.kind, m.run, m.key, m.queue, m.state, m.entry, m.number,
    m.attempt, m.holder, m.seq, m.answer, m.published, m.cancel, m.owners, m.doubted,
  }), ...)
end

-- One ring wakes one idle worker, which rings on if work it serves is left.
local function ring(queue)
  if call('LLEN', Q[queue].bell) == 0 then call('LPUSH', Q[queue].bell, '1') end
end

-- Put a message among the ready ones without a ring: for whoever hands out at once, and rings for what is left.
local function message_make_ready(m)
  local keys = Q[m.queue]
  m.state = 'r'
  m.entry = call('XADD', m.kind == 'step' and keys.steps or keys.ready, '*', 'm', m.id)
end

-- Put a message where it waits. An idle worker sleeps until the earliest due time it knows, at most a
-- second: it is told only of what is due sooner.
local function message_place(m, due)
  local keys = Q[m.queue]
  if due > now then
    m.state, m.entry = 'd', ''
    if m.kind ~= 'rescue' and due - now < 1000 then
      local first = call('ZRANGE', keys.delayed, 0, 0, 'WITHSCORES')
      if not first[2] or due < tonumber(first[2]) then ring(m.queue) end
    end
    call('ZADD', keys.delayed, int(due), m.id)
  else
    message_make_ready(m)
    ring(m.queue)
  end
end

-- Take a waiting message out of its place.
local function message_displace(m)
  local keys = Q[m.queue]
  if m.state == 'r' then
    call('XDEL', m.kind == 'step' and keys.steps or keys.ready, m.entry)
  elseif m.state == 'd' then
    call('ZREM', keys.delayed, m.id)
  else
    call('ZREM', keys.flight, m.id)
  end
end

local function message_publish(kind, run, key, queue, payload, due, owners)
  repeat -- a resent call mints under the same prefix again
    minted = minted + 1
  until call('HEXISTS', K.messages, PREFIX .. '-' .. minted) == 0
  local m = {
    id = PREFIX .. '-' .. minted, kind = kind, run = run, key = key, queue = queue, state = '', entry = '',
    number = 0, attempt = 0, holder = '', seq = 0, answer = '', published = now, cancel = 0, owners = owners or {},
    doubted = 0,
  }
  message_place(m, due)
  if payload == '' then message_save(m) else message_save(m, m.id .. ':p', payload) end
  return m
end

local function message_delete(m)
  message_displace(m)
  call('HDEL', K.messages, m.id, m.id .. ':p')
end

-- The one message of a run that waits under `key`. A step's key is taken until its message is settled; a
-- run message counts as waiting only until it is handed out. Returns the message and whether it is new.
local function message_ensure(run, kind, key, queue, payload, due)
  local m = message_load(call('HGET', run.keys.out, key))
  if m and (m.state ~= 'f' or kind == 'step') then
    if m.state == 'd' and due < tonumber(call('ZSCORE', Q[m.queue].delayed, m.id)) then
      message_displace(m)
      message_place(m, due)
      message_save(m)
    end
    return m, false
  end
  m = message_publish(kind, run.id, key, queue, payload, due)
  call('HSET', run.keys.out, key, m.id)
  return m, true
end

local function message_withdraw(run, key)
  local m = message_load(call('HGET', run.keys.out, key))
  if m and m.state ~= 'f' then message_delete(m) end
  call('HDEL', run.keys.out, key)
end

-- Give a delivery back: the message moves, keeps id, key and number. Whoever gives it back has lived through
-- it, so the count of hand-outs that nobody ended begins anew.
local function message_return(m, due)
  m.attempt, m.holder, m.seq, m.answer = 0, '', 0, ''
  message_place(m, due)
  message_save(m)
end

local function message_settle(run, m)
  message_delete(m)
  if run and call('HGET', run.keys.out, m.key) == m.id then call('HDEL', run.keys.out, m.key) end
end

-- The holder was heard: a whole lease from now.
local function lease_begin(m)
  m.doubted = 0
  call('ZADD', Q[m.queue].flight, int(now + LEASE - DOUBT), m.id)
end

local function lease_doubt(m)
  m.doubted = 1
  call('ZADD', Q[m.queue].flight, int(now + DOUBT), m.id)
  message_save(m)
end

-- ms until whoever holds the message loses it; 0 when nobody does or it is time. Never above the lease,
-- whatever the clocks say.
local function lease_left(m)
  if not m or m.state ~= 'f' then return 0 end
  local deadline = max(num(call('ZSCORE', Q[m.queue].flight, m.id)), amnesty)
  return min(LEASE, max(0, deadline - now) + (m.doubted == 1 and 0 or DOUBT))
end

-- Is (id, number, holder) the delivery that holds the message now?
local function message_held(id, number, holder)
  local m = message_load(id)
  if not m then return 'gone' end
  if m.number < number then return 'lost', m end
  if m.number > number or m.state ~= 'f' then return 'superseded', m end
  if m.holder ~= holder then return 'lost', m end
  return 'ok', m
end
