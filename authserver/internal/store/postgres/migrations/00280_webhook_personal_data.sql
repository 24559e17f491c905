-- An endpoint gets the personal data of submissions and members if its user asked for it. The column holds that user: if another
-- user enables the endpoint, in this release or in the previous one, it no longer equals user_id, and no personal data is sent.

-- +goose Up
alter table account.webhooks add column personal_data_for uuid;

-- +goose Down
select 1 / 0; -- forward only
