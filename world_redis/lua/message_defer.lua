-- Give deliveries back or put them off: the messages move, keep id, key and number.
--
-- ARGV[3]  [1 consumer, 2 list of [message id, number], 3 due in ms (0: ready now), 4 new queue or '']
-- Answers  ['ok', one word for each: ok · superseded · lost · gone]
--
-- Resend   the delivery holds the message no longer: `superseded`, nothing moves.
--
-- A deliberate return: it does not count as an attempt. A new queue reroutes the message whole.
--
-- Needs    messages

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local words = {}
for i, item in ipairs(A[2]) do
  local word, m = message_held(item[1], item[2], A[1])
  if word == 'ok' then
    message_displace(m)
    if A[4] ~= '' then m.queue = A[4] end
    message_return(m, now + A[3])
  end
  words[i] = word
end
return pack({ 'ok', words })
