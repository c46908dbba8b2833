-- Ask a run to cancel: recorded once, the run wakes, its deliveries and children are told.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 event data]
-- Answers  [word]: ok · exists (already asked) · expired (finished) · not_found
-- Resend   `exists`: at most one request is recorded.
--
-- Needs    rules runs entities finish

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run = run_load(1, A[1])
local answer = rule_answer('rq', run.status)
if answer == 'ok' and run.cancel == '1' then answer = 'exists' end
if answer ~= 'ok' then return pack({ answer }) end
run.cancel = '1'
log_append(run, 'rq', '', 0, A[2], '')
call('HSET', run.keys.run, 'cancel', '1')
run_save(run)
deliveries_signal(run, call('HGETALL', run.keys.out), 1)
children_cancel(run, entities_all(run))
wake(run)
return pack({ 'ok' })
