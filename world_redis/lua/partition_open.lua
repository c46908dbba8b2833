-- Open a partition, or check that this writer and it agree.
--
-- KEYS     1 record
-- ARGV     1 server run id, 2 lease ms, 3 MessagePack list of queues
-- Answers  MessagePack [word, lease ms]: ok · conflict (it runs with another lease)
-- Resend   what is there is compared, not written.

local record = redis.call('HMGET', KEYS[1], 'server', 'lease')
if record[1] then
  return cmsgpack.pack({ record[2] == ARGV[2] and 'ok' or 'conflict', tonumber(record[2]) })
end
redis.call('HSET', KEYS[1], 'server', ARGV[1], 'lease', ARGV[2], 'queues', ARGV[3])
return cmsgpack.pack({ 'ok', tonumber(ARGV[2]) })
