-- End a run at once: run_cancelled is written, whatever its body thinks.
--
-- runs     1: the run; 2: its parent, when ARGV says so
-- ARGV[3]  [1 run id, 2 event data, 3 parent run id or '', 4 parent's event data, 5 retention ms, 6 code:
--           'rx', or 'rf' for a run the machinery fails]
-- Answers  [word]: ok · exists (cancelled already) · conflict (ended otherwise) · not_found
--          ['parent', run id]   it has a parent whose keys are missing: call again
--
-- Resend   the run has ended: `exists`, or `conflict` for a failure; nothing is written.
--
-- Prevents: a run that ended with a parent that still waits for it.
--
-- Needs    rules runs finish

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run = run_load(1, A[1])
local answer = rule_answer(A[6], run.status)
if answer ~= 'ok' then return pack({ answer }) end
local named = run_field(run, 'parent')
if named ~= A[3] then return pack({ 'parent', named }) end
local parent = A[3] ~= '' and run_load(2, A[3]) or nil
log_append(run, A[6], '', 0, A[2], '')
run_finish(run, A[6] == 'rx' and 'cancelled' or 'failed', A[5])
parent_notify(run, parent, 'sf', A[4])
return pack({ 'ok' })
