-- +goose NO TRANSACTION
-- The replaced secrets of webhook endpoints, in the order in which retention clears them.

-- +goose Up
drop index concurrently if exists account.webhooks_by_former_secret;
create index concurrently webhooks_by_former_secret on account.webhooks (former_until) where former_until is not null;

-- +goose Down
select 1 / 0; -- forward only
