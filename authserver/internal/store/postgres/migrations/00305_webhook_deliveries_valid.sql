-- Apart from migration 304, because it reads all deliveries and would hold the locks of the other changes meanwhile.

-- +goose Up
alter table account.webhook_deliveries validate constraint webhook_deliveries_webhook;

-- +goose Down
select 1 / 0; -- forward only
