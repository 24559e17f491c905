-- clock: returns only the time, which every result carries.
-- KEYS[1] a key of the server
-- Returns: ok
return 'ok'
