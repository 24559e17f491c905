-- +goose NO TRANSACTION
-- Searches of the audit log and the connection log by request id.

-- +goose Up
drop index concurrently if exists account.audit_events_by_request;
create index concurrently audit_events_by_request on account.audit_events (tenant_id, request_id, at desc, id desc)
  where request_id <> '';

-- +goose Down
select 1 / 0; -- forward only
