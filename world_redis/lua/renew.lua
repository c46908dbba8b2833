-- Keep deliveries: those this worker still holds are its own for one lease from now.
--
-- ARGV[3]  [1 consumer, 2 list of [message id, number]]
-- Answers  ['ok', one word for each: ok · cancel (held; the run was asked to cancel) · stop (held; the body
--           has cancelled this step's call) · look (held; another worker's body has cancelled the call of a step
--           that runs under this message) · over (the run has ended: renewed no longer) · superseded ·
--           lost · gone, now]
--
-- Resend   begins the same leases again.
--
-- Runs when memory is full too: a full server must not lapse every lease.
--
-- Needs    messages

local refused = tick()
if refused ~= 'ok' then return pack({ refused }) end

local words = {}
for i, item in ipairs(A[2]) do
  local word, m = message_held(item[1], item[2], A[1])
  if word == 'ok' and m.cancel == 3 then
    word = 'over' -- not moved: it lapses, and whoever takes it settles it
  elseif word == 'ok' then
    local doubted = m.doubted == 1
    lease_begin(m)
    if doubted then message_save(m) end
    word = ({ [LOOK] = 'look', 'cancel', 'stop' })[m.cancel] or 'ok'
  end
  words[i] = word
end
return pack({ 'ok', words, now })
