-- +goose NO TRANSACTION
-- Checks the references of 00122. Requests go on meanwhile.

-- +goose Up
alter table resource.submissions validate constraint submissions_form;
alter table resource.submissions validate constraint submissions_supporter;

-- +goose Down
select 1 / 0; -- forward only
