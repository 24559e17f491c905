-- +goose NO TRANSACTION
-- The connections about whose end a mail is due. No step of a grant changes these columns, so a refresh stays a HOT update.

-- +goose Up
drop index concurrently if exists account.grants_to_remind;
create index concurrently grants_to_remind on account.grants (end_reminders, ends_at) where end_reminders < 2;

-- +goose Down
select 1 / 0; -- forward only
