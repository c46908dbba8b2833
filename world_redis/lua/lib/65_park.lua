-- Parking: the run stays open, accepts facts, sends no wakes, and says why.
--
-- Needs    messages

local function run_park(run, reason, detail, builds)
  run.parked = reason
  call('HSET', run.keys.run, 'parked', reason, 'park_detail', detail, 'park_builds', builds)
  call('HSET', K.parked, run.id, pack({ reason, now, builds }))
  message_withdraw(run, 'wake')
  message_withdraw(run, 'timer')
end
