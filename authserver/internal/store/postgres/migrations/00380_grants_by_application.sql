-- +goose NO TRANSACTION
-- One index in place of grants_by_client and grants_by_tenant (migrations 381 and 382): each update of a grant opens
-- every index of the table, so a refresh pays for each. It serves the statements of the previous release too.

-- +goose Up
drop index concurrently if exists account.grants_by_application;
create index concurrently grants_by_application on account.grants (client_id, tenant_id, created_at desc);

-- +goose Down
select 1 / 0; -- forward only
