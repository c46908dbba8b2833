-- Let a parked run try again: it gets one wake.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 build ('' for an operator): refused when it is on the park record]
-- Answers  [word]: ok · exists (not parked, or this build has refused it) · expired · not_found
-- Resend   `exists`: it is not parked any more.
--
-- Needs    messages runs

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run = run_load(1, A[1])
if run.status == 'absent' then return pack({ 'not_found' }) end
if run.finished then return pack({ 'expired' }) end
if run.parked == '' then return pack({ 'exists' }) end
local builds = call('HGET', run.keys.run, 'park_builds') or ''
if A[2] ~= '' and string.find(' ' .. builds .. ' ', ' ' .. A[2] .. ' ', 1, true) then return pack({ 'exists' }) end
run.parked = ''
call('HDEL', run.keys.run, 'parked', 'park_detail', 'park_builds', 'refused_since')
call('HDEL', K.parked, run.id)
-- Its timer was withdrawn when it parked, and whoever holds it live does not know: it must look.
message_ensure(run, 'run', 'wake', run_field(run, 'queue'), 'look', now)
return pack({ 'ok' })
