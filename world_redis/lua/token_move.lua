-- Move or forget a user-chosen hook token, unless somebody else has moved it meanwhile.
--
-- KEYS     1 the token's key
-- ARGV     1 the holder it must have (a token nobody holds may be moved too), 2 the new one ('': forget)
-- Answers  1 done · 0 it moved meanwhile
--
-- Resend   the new holder is there already: 1.
--
-- Prevents: two contenders that both believe to have taken a token over.

local held = redis.call('GET', KEYS[1])
if held and held ~= ARGV[1] and held ~= ARGV[2] then return 0 end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2])
end
return 1
