-- Open a namespace, or learn what it is: its key layout and how many partitions it has.
--
-- KEYS     1 namespace record
-- ARGV     1 layout of this writer, 2 partitions it was started with
-- Answers  MessagePack [layout, partitions]: the first writer's layout; the largest number anybody named
-- Resend   what is there is kept, the number only grows.
--
-- Prevents: two processes that start at once with 8 and 4 partitions leaving 4, and the runs beyond unread.

redis.call('HSETNX', KEYS[1], 'layout', ARGV[1])
local known = tonumber(redis.call('HGET', KEYS[1], 'partitions') or '0')
if tonumber(ARGV[2]) > known then
  known = tonumber(ARGV[2])
  redis.call('HSET', KEYS[1], 'partitions', ARGV[2])
end
return cmsgpack.pack({ redis.call('HGET', KEYS[1], 'layout'), known })
