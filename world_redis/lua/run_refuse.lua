-- A worker cannot take a run on (unknown name or version, newer spec, divergence, a stuck body): give its
-- deliveries back for others, or park it when nobody could for too long.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 consumer, 3 list of [message id, number], 4 reason, 5 detail, 6 build,
--           7 park after ms (0: now), 8 give back for at most ms]
-- Answers  [word]: deferred · parked · expired (run finished: settled) · not_found · superseded
--
-- Resend   the deliveries are not held any more: `superseded`.
--
-- The time counts from the first refusal on the run and is cleared by a committed pass; every build that
-- refused is kept, so that the first worker of another build tries a parked run again. Parking is not
-- fenced by the position: a parked run must not be kept awake by what it has not seen.
--
-- Needs    messages runs park

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run = run_load(1, A[1])
local held = {}
for _, item in ipairs(A[3]) do
  local word, m = message_held(item[1], item[2], A[2])
  if word == 'ok' then held[#held + 1] = m end
end
if #held == 0 then return pack({ 'superseded' }) end
if run.status == 'absent' or run.finished then
  for _, m in ipairs(held) do message_settle(run.status ~= 'absent' and run or nil, m) end
  return pack({ run.finished and 'expired' or 'not_found' })
end

local since = tonumber(run.refused_since) or now
local builds = call('HGET', run.keys.run, 'refused_by') or ''
if A[6] ~= '' and not string.find(' ' .. builds .. ' ', ' ' .. A[6] .. ' ', 1, true) then
  builds = builds == '' and A[6] or builds .. ' ' .. A[6]
end
call('HSET', run.keys.run, 'refused_since', int(since), 'refused_by', builds)

if run.parked == '' and now - since < A[7] then
  local back = min(A[8], max(50, floor((now - since) / 4))) -- others may be quick at first
  for _, m in ipairs(held) do
    message_displace(m)
    message_return(m, now + back)
  end
  return pack({ 'deferred' })
end
local parked = run.parked ~= ''
for _, m in ipairs(held) do
  if m.kind == 'step' then -- the run parks; its step waits for whoever knows it
    message_displace(m)
    message_return(m, now + max(A[8], parked and 30000 or 1000))
  else
    message_settle(run, m)
  end
end
if parked then return pack({ 'deferred' }) end
run_park(run, A[4], A[5], builds)
return pack({ 'parked' })
