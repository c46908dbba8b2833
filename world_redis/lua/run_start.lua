-- Create a run and its first message.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 run record fields (flat list), 3 run_created's data, 4 queue, 5 payload, 6 due at ms
--           or 0, 7 due in ms]
-- Answers  [word, now]
--          ok      created, or created by this same call before (its mark is the mark of slot 1)
--          exists  the run id is taken by another start
--
-- Resend   `ok` by the mark of slot 1, which a start keeps; another start of the same id is `exists`.
--
-- Prevents: a run without a message, a message without a run.
--
-- Needs    messages runs

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local run = run_load(1, A[1])
if run.status ~= 'absent' then
  local first = call('XRANGE', run.keys.log, '1-0', '1-0')[1]
  return pack({ first and first[2][8] == MARK and 'ok' or 'exists', now })
end
run_create(run, A[2], A[3])
message_ensure(run, 'run', 'wake', A[4], A[5], A[6] > 0 and A[6] or now + A[7])
return pack({ 'ok', now })
