-- Functions for tables that are partitioned by month: by created_at, in UTC. The first partition has no start. It has the rows from
-- before the table was partitioned. The last one has no end: it has rows only if no process has made months for three months. There is no
-- default partition, so that Postgres can read the partitions in the order of their times, one after the other.

-- +goose Up
-- months_of returns the partitions of a table.
-- +goose StatementBegin
create function account.months_of(parent text) returns table (name text, starts timestamptz, ends timestamptz)
language sql stable
set search_path = pg_catalog, pg_temp
as $$
  select format('%I.%I', c.relnamespace::regnamespace::text, c.relname),
    substring(b.range from 'FROM \(''([^'']*)''\)')::timestamptz, substring(b.range from 'TO \(''([^'']*)''\)')::timestamptz
  from pg_inherits i join pg_class c on c.oid = i.inhrelid
  cross join lateral (select pg_get_expr(c.relpartbound, c.oid) as range) b
  where i.inhparent = parent::regclass
$$;

-- make_months adds the partitions up to the third month after this one. It moves their rows from the last partition. Writes wait
-- behind it for at most 0.1 s if the table is in use; a later call tries again.
create function account.make_months(parent text) returns void
language plpgsql volatile
set search_path = account, pg_temp
set lock_timeout = '100ms'
as $$
declare
  until timestamptz := (date_trunc('month', now() at time zone 'UTC') + interval '4 months') at time zone 'UTC';
  last text;
  month text;
  begins timestamptz;
  over timestamptz;
  has_rows boolean;
begin
  perform pg_advisory_xact_lock(hashtextextended('months of ' || parent, 0));
  select p.name, p.starts into last, begins from account.months_of(parent) p where p.ends is null;
  if last is null or begins >= until then
    return;
  end if;
  execute format('alter table %s detach partition %s', parent, last);
  while begins < until loop
    over := (begins at time zone 'UTC' + interval '1 month') at time zone 'UTC';
    month := parent || to_char(begins at time zone 'UTC', '_YYYY_MM');
    execute format('create table %s (like %s including defaults including constraints including indexes)', month, last);
    execute format('alter table %s set (autovacuum_vacuum_scale_factor = 0.05)', month);
    execute format('select exists (select 1 from %s where created_at < $1)', last) into has_rows using over;
    if has_rows then
      execute format('insert into %s select * from %s where created_at < $1', month, last) using over;
      execute format('delete from %s where created_at < $1', last) using over;
    end if;
    execute format('alter table %s attach partition %s for values from (%L) to (%L)', parent, month, begins, over);
    begins := over;
  end loop;
  execute format('alter table %s attach partition %s for values from (%L) to (maxvalue)', parent, last, begins);
end
$$;
-- +goose StatementEnd
revoke all on function account.months_of, account.make_months from public;

-- +goose Down
select 1 / 0; -- forward only
