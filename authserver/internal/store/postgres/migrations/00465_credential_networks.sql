-- Which network of a credential was its first, and about which a mail was queued (contract, section 5b). The previous release records no
-- networks. The first network of a credential that is recorded is no new one, wherever the credential was used before, and for a week there
-- are no mails about credentials that were made before this migration.

-- +goose Up
alter table account.credential_networks
  add column is_first boolean not null default false, -- of its credential, for which this row is the lock too
  add column mailed_at timestamptz; -- null: no mail was queued
create unique index credential_networks_first on account.credential_networks (tenant_id, credential_id) where is_first;
insert into account.finished_upgrades (name) values ('networks_recorded');

-- +goose StatementBegin
-- note_networks notes from where credentials were used. A network is due a mail if its credential has been used from another one before:
-- of several processes that note the first networks of a credential at once, one finds none. A credential has at most this number of
-- networks; then a new one replaces the one that was not used for the longest time, and is due no mail: it may have been known.
create function account.note_networks(
  tenants uuid[], credentials uuid[], kinds text[], users uuid[], networks cidr[], most integer
) returns void -- the arrays have one length, and are sorted by credential
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
  stored bigint;
begin
  for i in 1 .. coalesce(cardinality(credentials), 0) loop
    owner := tenants[i];
    asked := credentials[i];
    sort := kinds[i];
    person := users[i];
    place := networks[i];
    select n.last_used_at into used from credential_networks n
      where n.tenant_id = owner and n.credential_id = asked and n.network = place;
    if found then
      if used < today then
        -- Another process that has the row notes the same day. To wait for it could be a deadlock.
        perform from credential_networks n
          where n.tenant_id = owner and n.credential_id = asked and n.network = place for update skip locked;
        if found then
          update credential_networks n set last_used_at = at
            where n.tenant_id = owner and n.credential_id = asked and n.network = place and n.last_used_at < today;
        end if;
      end if;
      continue;
    end if;
    insert into credential_networks (tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at, is_first)
      values (owner, asked, place, sort, person, at, at, true) on conflict do nothing;
    continue when found;
    -- One at a time for each credential. The statements after it see what the transaction that held the lock has noted.
    perform from credential_networks n where n.tenant_id = owner and n.credential_id = asked and n.is_first for update;
    perform from credential_networks n where n.tenant_id = owner and n.credential_id = asked and n.network = place;
    continue when found;
    select count(*) into stored from credential_networks n where n.tenant_id = owner and n.credential_id = asked;
    if stored < most then
      insert into credential_networks (tenant_id, credential_id, network, kind, user_id, first_used_at, last_used_at, mail_due)
        values (owner, asked, place, sort, person, at, at, true);
    else
      select n.network into replaced from credential_networks n where n.tenant_id = owner and n.credential_id = asked
        order by n.last_used_at, n.network limit 1;
      update credential_networks n set network = place, first_used_at = at, last_used_at = at, mail_due = false, mailed_at = null
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
