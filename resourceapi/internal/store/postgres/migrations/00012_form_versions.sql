-- A form can be changed: its versions are what If-Match names. Its questions stay as they are.

-- +goose Up
alter table resource.forms add column version integer not null default 1;

-- +goose Down
select 1 / 0; -- forward only
