-- The sweeper found a run without a way forward: wake it, unless it has moved since.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 head slot when it was found broken]
-- Answers  [word]: ok (woken) · exists (it has moved, finished or parked)
-- Resend   one wake waits, however often it is asked for.
--
-- Needs    messages runs

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run = run_load(1, A[1])
if run.status == 'absent' or run.finished or run.parked ~= '' or run.slot ~= A[2] then return pack({ 'exists' }) end
message_ensure(run, 'run', 'wake', run_field(run, 'queue'), 'look', now) -- a live body must look at its steps too
return pack({ 'ok' })
