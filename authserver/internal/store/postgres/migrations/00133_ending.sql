-- What is known of the request that ended a grant by presenting a used code or refresh token again: whether its successor had been used, how long
-- before, and the shortened network and User-Agent (grant.Ending). Null for grants that ended otherwise.

-- +goose Up
alter table account.grants add column ending jsonb;

-- +goose Down
select 1 / 0; -- forward only
