-- Read a run: its record, its log after a slot, its open entities.
--
-- runs     1: the run
-- ARGV[3]  [1 run id, 2 seen (slot), 3 table 0/1, 4 record 0/1]
-- Answers  ['ok', now, head, position, status, cancel 0/1, events, more 0/1, table or 0, record (flat list)]
--          ['not_found']
-- Resend   writes nothing.
--
-- Needs    runs table

local run = run_load(1, A[1])
if run.status == 'absent' then return pack({ 'not_found' }) end
local events, more = events_after(run, A[2], run.slot)
return pack({
  'ok', now, run.slot, { run.count, run.pslot, run.pmark }, run.status, run.cancel == '1' and 1 or 0, events,
  more and 1 or 0, A[3] == 1 and table_of(run) or 0, A[4] == 1 and call('HGETALL', run.keys.run) or {},
})
