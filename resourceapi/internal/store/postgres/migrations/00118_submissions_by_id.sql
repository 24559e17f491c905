-- +goose NO TRANSACTION
-- The previous release finds submissions by the id alone. The next release drops this index.

-- +goose Up
drop index concurrently if exists resource.submissions_id;
create index concurrently submissions_id on resource.submissions (id);

-- +goose Down
select 1 / 0; -- forward only
