-- A refusal at the token endpoint is noted once for each grant, reason and clock hour: a client that is stuck and asks again and
-- again cannot fill the table.

-- +goose Up
create unique index audit_events_refusals on account.audit_events
  (subject, (detail->>'reason'), date_trunc('hour', at at time zone 'UTC')) where action = 'grant.refused';

-- +goose Down
select 1 / 0; -- forward only
