-- Creates the database roles: the owner, which migrates the schema, and a login for each service. Run it once with psql
-- as the superuser, on a new database. The migrations grant privileges to the group roles almoner_…. The passwords are
-- read from the directory in the variable secrets.
\if :{?secrets}
\else
  \set secrets /run/secrets
\endif
\set owner `cat :secrets/owner_password`
\set authserver `cat :secrets/authserver_password`
\set resourceapi `cat :secrets/resourceapi_password`
\set ON_ERROR_STOP on

set log_statement = 'none'; -- no password in the server's log,
set log_min_error_statement = 'panic'; -- not even after an error
set log_min_duration_statement = -1;

create role almoner_owner login password :'owner';
create role almoner_authserver nologin;
create role almoner_resourceapi nologin;
create role authserver login password :'authserver' in role almoner_authserver;
create role resourceapi login password :'resourceapi' in role almoner_resourceapi;

select current_database() as database \gset
alter database :"database" owner to almoner_owner;
revoke all on database :"database" from public;
grant connect on database :"database" to almoner_authserver, almoner_resourceapi; -- for all their logins (runbooks/store-passwords.md)
revoke create on schema public from public;
