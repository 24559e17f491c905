-- +goose NO TRANSACTION
-- Submissions that were rejected, by form: few, which the filter status would search the whole form for. Those that wait have
-- an index already.

-- +goose Up
drop index concurrently if exists resource.submissions_rejected;
create index concurrently submissions_rejected on resource.submissions (form_id, created_at desc, id desc)
  where status = 'rejected';

-- +goose Down
select 1 / 0; -- forward only
