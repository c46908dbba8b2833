-- Deliver a payload to an open hook.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 hook id, 3 token, 4 resume id, 5 data]
-- Answers  [word, slot]: ok (also for a resend: the same event's slot) · gone (closed) · expired · not_found
--
-- Resend   the same resume id answers the same slot, as long as the run is kept.
--
-- Prevents: a payload recorded but its run not woken; a payload recorded twice by a resend.
--
-- Needs    rules runs entities

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run, id = run_load(1, A[1]), A[2]
if run.status == 'absent' then return pack({ 'not_found', 0 }) end
local seen = 'r' .. id .. ':' .. A[4]
local earlier = call('HGET', run.keys.entities, seen)
if earlier then return pack({ 'ok', tonumber(earlier) }) end
if run.finished then return pack({ rule_finished('hr'), 0 }) end
local hook = entity_load(run, id)
local answer = rule_answer('hr', entity_state(run, id, hook))
-- Digests, so that the time of the comparison says nothing about the token.
if answer == 'ok' and redis.sha1hex(hook.token) ~= redis.sha1hex(A[3]) then answer = 'not_found' end
if answer ~= 'ok' then return pack({ answer, 0 }) end
local slot = log_append(run, 'hr', id, 0, A[5], '')
call('HSET', run.keys.entities, seen, int(slot))
run_save(run)
wake(run)
return pack({ 'ok', slot })
