-- Open a partition, or check that this writer and it agree.
--
-- KEYS     1 record
-- ARGV     1 server run id, 2 lease ms (0: no opinion), 3 MessagePack list of queues, 4 replace another
--          lease 0/1 (only while no worker lives)
-- Answers  MessagePack [word, lease ms]: ok · conflict (it runs with another lease)
-- Resend   what is there is compared, not written.

local record = redis.call('HMGET', KEYS[1], 'server', 'lease')
if record[1] then
  -- A lease of 0: opened by a client before the first worker came.
  if ARGV[2] ~= '0' and (record[2] == '0' or ARGV[4] == '1') then
    redis.call('HSET', KEYS[1], 'lease', ARGV[2])
    record[2] = ARGV[2]
  end
  local agrees = ARGV[2] == '0' or record[2] == ARGV[2]
  return cmsgpack.pack({ agrees and 'ok' or 'conflict', tonumber(record[2]) })
end
redis.call('HSET', KEYS[1], 'server', ARGV[1], 'lease', ARGV[2], 'queues', ARGV[3])
return cmsgpack.pack({ 'ok', tonumber(ARGV[2]) })
