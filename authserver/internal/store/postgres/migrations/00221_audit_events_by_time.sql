-- +goose NO TRANSACTION
-- Events of the audit log that are old enough to be deleted.

-- +goose Up
drop index concurrently if exists account.audit_events_by_time;
create index concurrently audit_events_by_time on account.audit_events (at);

-- +goose Down
select 1 / 0; -- forward only
