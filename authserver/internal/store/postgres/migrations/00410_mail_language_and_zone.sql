-- The language in which a person wants mails, and the time zone that the browser of a sign-in reported ('': none), in which mails
-- write times.

-- +goose Up
alter table account.users add column mail_language text not null default 'en';
alter table account.sign_ins add column time_zone text not null default '';

-- +goose Down
select 1 / 0; -- forward only
