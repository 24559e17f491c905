-- +goose NO TRANSACTION
-- The webhook endpoints whose addition authserver still has to mail (migration 340).

-- +goose Up
drop index concurrently if exists account.webhooks_with_added_mail;
create index concurrently webhooks_with_added_mail on account.webhooks (id) where added_mail_due;

-- +goose Down
select 1 / 0; -- forward only
