-- clock: nothing but the time, which every answer carries.
-- KEYS[1] the key whose server is asked
-- Answers: ok
return 'ok'
