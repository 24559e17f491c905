-- Clients that are known by their metadata documents: a copy of what each document said when it was read last. Such a client belongs
-- to no workspace, and may ask for any of the deployment's resources (resource is '').

-- +goose Up
alter table account.oauth_clients
  add column metadata_url text constraint oauth_clients_metadata_url_key unique check (metadata_url like 'https://%'),
  add column keys jsonb,         -- of private_key_jwt: a JWK set
  add column keys_url text,      -- where that set was read, null where the document holds it
  add column document_read_at timestamptz,
  add column document_fresh_until timestamptz,
  drop constraint oauth_clients_check,
  drop constraint oauth_clients_check1,
  drop constraint oauth_clients_check2,
  drop constraint oauth_clients_token_endpoint_auth_method_check,
  add constraint oauth_clients_owner_check check ((tenant_id is null) = (kind = 'service' or metadata_url is not null)),
  add constraint oauth_clients_connector_check check ((kind = 'connector') = (resource is not null)
    and (connector_platform is null or kind = 'connector') and (kind <> 'connector' or connector_platform is not null or metadata_url is not null)),
  add constraint oauth_clients_document_check check (metadata_url is null
    or (kind = 'connector' and resource = '' and document_read_at is not null and document_fresh_until is not null)),
  add constraint oauth_clients_method_check check (token_endpoint_auth_method in
      ('none', 'client_secret_json', 'client_secret_post', 'client_secret_basic', 'private_key_jwt')
    and (kind = 'connector') = (token_endpoint_auth_method in ('none', 'private_key_jwt'))
    and (token_endpoint_auth_method = 'private_key_jwt') = (keys is not null)
    and (token_endpoint_auth_method <> 'private_key_jwt' or metadata_url is not null));

-- +goose Down
select 1 / 0; -- forward only
