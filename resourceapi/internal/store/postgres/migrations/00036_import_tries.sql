-- How often an import failed: one that fails each time is rejected in the end.

-- +goose Up
alter table resource.imports add column tries integer not null default 0;

-- +goose Down
select 1 / 0; -- forward only
