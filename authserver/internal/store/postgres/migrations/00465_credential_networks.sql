-- Which network of a credential was its first, and which mails were queued (contract, section 5b). The previous release records no
-- networks. The first network of a credential that is recorded is no new one, wherever the credential was used before, and for a week there
-- are no mails about credentials that were made before this migration.

-- +goose Up
alter table account.credential_networks
  add column is_first boolean not null default false, -- of its credential, for which this row is the lock too
  -- Of the first network of a credential: when the first mail of a day about the credential was queued, or the one about many networks, and
  -- their number in that day. Null: no mail was queued.
  add column mailed_at timestamptz,
  add column mails smallint not null default 0;
create unique index credential_networks_first on account.credential_networks (tenant_id, credential_id) where is_first;
insert into account.finished_upgrades (name) values ('networks_recorded');

-- +goose StatementBegin
-- note_networks notes from where credentials were used. A network is due a mail if its credential has been used from another one before. A
-- credential has at most this number of networks; then a new one replaces one of those whose last day of use is the oldest: of these, the one
-- that was noted last, so that a network of every day stays. One that was forgotten is new again. The row of the first network is the lock of
-- its credential: it is taken before any other row of the credential is changed, and credentials are locked in the order of their keys, so
-- that two transactions never wait for each other.
create function account.note_networks(
  tenants uuid[], credentials uuid[], kinds text[], users uuid[], networks cidr[], most integer
) returns void -- the arrays have one length
language plpgsql volatile
set search_path = account, pg_temp
as $$
declare
  at timestamptz := now();
  today timestamptz := date_trunc('day', now(), 'UTC');
  owner uuid;
  asked uuid;
  sort text;
  person uuid;
  place cidr;
  replaced cidr;
  used timestamptz;
  others boolean;
  stored bigint;
begin
  for owner, asked, sort, person, place in
    select t.* from unnest(tenants, credentials, kinds, users, networks) t (owner, asked, sort, person, place) order by 1, 2, 5
  loop
    select n.last_used_at into used from credential_networks n
      where n.tenant_id = owner and n.credential_id = asked and n.network = place;
    continue when found and used >= today;
    -- Without a first one, but with others, the first ones were forgotten: this one is new.
    select exists (select from credential_networks n where n.tenant_id = owner and n.credential_id = asked) into others;
    insert into credential_networks (tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at, is_first, mail_due)
      values (owner, asked, place, sort, person, at, at, true, others) on conflict do nothing;
    continue when found;
    -- One at a time for each credential. The statements after it see what the transaction that held the lock has noted.
    perform from credential_networks n where n.tenant_id = owner and n.credential_id = asked and n.is_first for update;
    update credential_networks n set last_used_at = at
      where n.tenant_id = owner and n.credential_id = asked and n.network = place;
    continue when found;
    select count(*) into stored from credential_networks n where n.tenant_id = owner and n.credential_id = asked;
    if stored < most then
      insert into credential_networks (tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at, mail_due)
        values (owner, asked, place, sort, person, at, at, true);
    else
      select n.network into replaced from credential_networks n where n.tenant_id = owner and n.credential_id = asked
        order by date_trunc('day', n.last_used_at, 'UTC'), n.first_used_at desc, n.network limit 1;
      update credential_networks n set network = place, first_used_at = at, last_used_at = at, mail_due = true
        where n.tenant_id = owner and n.credential_id = asked and n.network = replaced;
    end if;
  end loop;
end
$$;
-- +goose StatementEnd
revoke all on function account.note_networks(uuid[], uuid[], text[], uuid[], cidr[], integer) from public;
grant execute on function account.note_networks(uuid[], uuid[], text[], uuid[], cidr[], integer)
  to almoner_authserver, almoner_resourceapi;

-- +goose Down
select 1 / 0; -- forward only
