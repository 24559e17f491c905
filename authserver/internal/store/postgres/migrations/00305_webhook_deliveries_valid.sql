-- Separate from migration 304: it reads all deliveries, and would hold the locks of the other changes during that time.

-- +goose Up
alter table account.webhook_deliveries validate constraint webhook_deliveries_webhook;

-- +goose Down
select 1 / 0; -- forward only
