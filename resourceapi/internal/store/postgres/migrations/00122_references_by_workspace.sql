-- A submission refers to a form and a supporter of its own workspace. 00123 checks the rows that exist.

-- +goose Up
alter table resource.submissions
  add constraint submissions_form foreign key (tenant_id, form_id)
    references resource.forms (tenant_id, id) not valid,
  add constraint submissions_supporter foreign key (tenant_id, supporter_id)
    references resource.supporters (tenant_id, id) not valid;

-- +goose Down
select 1 / 0; -- forward only
