-- The keys of forms, supporters and submissions have the workspace. The previous release recognises a used token by the name
-- of its constraint, which stays.

-- +goose Up
alter table resource.submissions
  drop constraint submissions_form_id_fkey,
  drop constraint submissions_supporter_id_fkey,
  drop constraint submissions_pkey,
  add constraint submissions_pkey primary key using index submissions_workspace_id,
  drop constraint submissions_token,
  add constraint submissions_token unique using index submissions_workspace_token;
alter table resource.supporters
  drop constraint supporters_pkey,
  add constraint supporters_pkey primary key using index supporters_workspace_id;
alter table resource.forms
  drop constraint forms_pkey,
  add constraint forms_pkey primary key using index forms_workspace_id;

-- +goose Down
select 1 / 0; -- forward only
