-- Erasures of more submissions than a request can delete (contract, section 6a). What is erased cannot be read from the moment the row is
-- committed: forms and supporters have erased_at, and statements that read submissions leave out those of accepted erasures. A worker deletes
-- the submissions in batches.

-- +goose Up
alter table resource.forms add column if not exists erased_at timestamptz;
alter table resource.supporters add column if not exists erased_at timestamptz;

create table resource.erasures (
  tenant_id uuid not null,
  id uuid not null,
  kind text not null check (kind in ('form', 'supporter')),
  -- The form, or the supporters of one person; none for an address that only submissions without a supporter have.
  subjects uuid[] not null,
  -- The spellings of the person's address, while the erasure runs. Submissions without a supporter that have one are erased too, if they are
  -- not younger than the erasure.
  addresses text[],
  user_id uuid not null,
  request_id text not null,
  status text not null default 'accepted' check (status in ('accepted', 'processed')),
  deleted integer not null default 0,
  accepted_at timestamptz not null default now(),
  worked_at timestamptz not null default now(), -- when its last batch was deleted
  -- The search for the address goes through the submissions of the workspace in the order of their ids; this is the last one it read.
  searched_id uuid not null default '00000000-0000-0000-0000-000000000000',
  finished_at timestamptz,
  primary key (tenant_id, id),
  check ((finished_at is not null) = (status = 'processed'))
);
create index erasures_running on resource.erasures (tenant_id) where status = 'accepted';
create index erasures_by_end on resource.erasures (finished_at) where finished_at is not null;
grant select, insert, update, delete on resource.erasures to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
