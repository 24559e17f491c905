-- +goose NO TRANSACTION
-- Submissions that came to their end, by when: what updatedSince finds besides the new ones.

-- +goose Up
drop index concurrently if exists resource.submissions_finished;
create index concurrently submissions_finished on resource.submissions (form_id, finished_at desc, created_at)
  where finished_at is not null;

-- +goose Down
select 1 / 0; -- forward only
