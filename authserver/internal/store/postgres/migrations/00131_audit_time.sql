-- The time of an audit event is the server's clock when the row is inserted. authserver's role cannot choose it: it may insert every column
-- but at. now() would be the start of the transaction, which a holder of the role could keep open to backdate what follows.
-- A migration that adds a column to this table has to grant insert on that column too.

-- +goose Up
alter table account.audit_events alter column at set default clock_timestamp();
revoke insert on account.audit_events from almoner_authserver;
grant insert (id, tenant_id, user_id, actor, action, subject, detail, request_id) on account.audit_events to almoner_authserver;

-- +goose Down
select 1 / 0; -- forward only
