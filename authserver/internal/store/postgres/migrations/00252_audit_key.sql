-- +goose NO TRANSACTION
-- The key that the audit events get with their partitions.

-- +goose Up
drop index concurrently if exists account.audit_events_key;
create unique index concurrently audit_events_key on account.audit_events (tenant_id, at, id);

-- +goose Down
select 1 / 0; -- forward only
