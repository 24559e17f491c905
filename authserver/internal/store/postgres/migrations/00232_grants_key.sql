-- The primary key of a grant is its workspace and its id, so that a distributed Postgres can hold the grants of a
-- workspace on one node. Nothing refers to the former key. Its statements go on working: grants_by_id is unique.

-- +goose Up
alter table account.grants drop constraint grants_pkey;
alter table account.grants add constraint grants_pkey primary key using index grants_by_workspace;

-- +goose Down
select 1 / 0; -- forward only
