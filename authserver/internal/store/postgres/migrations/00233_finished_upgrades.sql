-- Steps of upgrades that wait until no process of an earlier release is left. `authserver migrate --finish` takes them. A
-- row says that the step was taken.
--
-- tokens_carry_workspace: codes contain the workspace of their grant, and so do the refresh tokens that follow them. The
-- previous release cannot read these, so in a rolling upgrade it would refuse a client that got one from a new process.
-- Until then, codes have the former format, and each request with such a code or token costs one more read.
-- A new installation has no process of an earlier release, and no workspace.

-- +goose Up
create table account.finished_upgrades (
  name text primary key,
  finished_at timestamptz not null default now()
);
grant select on account.finished_upgrades to almoner_authserver;

insert into account.finished_upgrades (name) select 'tokens_carry_workspace'
where not exists (select from account.tenants);

-- +goose Down
select 1 / 0; -- forward only
