-- Engage: the public forms of a workspace, what people sent in, and the supporters that became of it.

-- +goose Up
create table resource.forms (
  id uuid primary key,
  tenant_id uuid not null,
  embed_key text not null constraint forms_embed_key unique,
  title text not null check (title <> ''),
  fields jsonb not null,
  allowed_origins text[] not null,
  created_by uuid not null,
  created_at timestamptz not null default now(),
  disabled_at timestamptz
);
-- The order of the list: newest first, ties by id.
create index forms_page on resource.forms (tenant_id, created_at desc, id desc);

-- Someone who wrote to the workspace. One e-mail address is one supporter; who left none is one for each submission.
create table resource.supporters (
  id uuid primary key,
  tenant_id uuid not null,
  email text check (email = lower(email)),
  phone text,
  name text,
  created_at timestamptz not null default now()
);
create unique index supporters_by_email on resource.supporters (tenant_id, email);

-- consents: field, version of the notice, whether it was given. trapped: a field that people do not see was filled in.
create table resource.submissions (
  id uuid primary key,
  tenant_id uuid not null,
  form_id uuid not null references resource.forms,
  token_id uuid not null constraint submissions_token unique,
  answers jsonb not null,
  consents jsonb not null,
  trapped boolean not null,
  status text not null default 'accepted' check (status in ('accepted', 'processed', 'rejected')),
  reasons jsonb not null default '[]',
  supporter_id uuid references resource.supporters,
  created_at timestamptz not null default now(),
  finished_at timestamptz,
  check ((status = 'accepted') = (finished_at is null)),
  check ((status = 'processed') = (supporter_id is not null))
);
create index submissions_page on resource.submissions (form_id, created_at desc, id desc);

grant select, insert, update, delete on resource.forms, resource.supporters, resource.submissions to almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
