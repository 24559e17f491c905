-- How many of the mails before the end of a connection are done, sent or not: 1 is that of 7 days before, 2 that of 1 day before. The
-- previous release sends none, and leaves the number as it is.

-- +goose Up
alter table account.grants add column end_reminders smallint not null default 0;

-- +goose Down
select 1 / 0; -- forward only
