-- +goose NO TRANSACTION
-- What a supporter sent, which goes when the supporter is erased.

-- +goose Up
drop index concurrently if exists resource.submissions_by_supporter;
create index concurrently submissions_by_supporter on resource.submissions (supporter_id) where supporter_id is not null;

-- +goose Down
select 1 / 0; -- forward only
