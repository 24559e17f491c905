-- +goose NO TRANSACTION
-- Supporters whose address is stored as it was typed, so that an erasure compares its canonical spelling (shared/spelling).
-- The previous release stores such rows, and sets canonical to null. A new row has its canonical spelling in email.

-- +goose Up
alter table resource.supporters add column if not exists canonical boolean;
drop index concurrently if exists resource.supporters_as_typed;
create index concurrently supporters_as_typed on resource.supporters (tenant_id)
  where canonical is null and (octet_length(email) <> length(email) or strpos(email, 'xn--') > 0);

-- +goose Down
select 1 / 0; -- forward only
