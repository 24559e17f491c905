-- A form that `resourceapi apply` created was created by no user. The command of the previous release stored zeros.

-- +goose Up
alter table resource.forms alter column created_by drop not null;
update resource.forms set created_by = null where created_by = '00000000-0000-0000-0000-000000000000';

-- +goose Down
select 1 / 0; -- forward only
