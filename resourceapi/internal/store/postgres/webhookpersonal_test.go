package postgres

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/perm"

	"github.com/almonerhq/almoner/resourceapi/internal/event"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// W8: permissions are read again with the personal data, after the event was selected.
func TestW8_PersonalDataEndsWithPermission(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	store := open(t, w)
	workspaceID, user, id := w.Workspace(), w.User(), uuid.New()
	w.Member(workspaceID, user, perm.AccountAPIAccess, perm.AccountReadMembers)
	w.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at,
			personal_data_for)
		values ($1, $2, $3, 'https://hooks.example.invalid', '{member.added}', '', '', 0, now(), $3)`,
		id, workspaceID, user)
	before, err := store.Webhooks().Target(t.Context(), workspaceID, id)
	if err != nil || !before.PersonalData {
		t.Fatalf("%+v %v", before, err)
	}
	data, err := json.Marshal(map[string]uuid.UUID{"id": user})
	if err != nil {
		t.Fatal(err)
	}
	sent := func() bool {
		t.Helper()
		p, err := store.Webhooks().PersonalData(t.Context(), before, event.Event{Type: "member.added", Data: data})
		if err != nil {
			t.Fatal(err)
		}
		return p.Member != nil
	}
	if !sent() {
		t.Error("the member is not sent")
	}
	w.Member(workspaceID, user, perm.AccountAPIAccess)
	if sent() {
		t.Error("the member is sent to a user who may not read members")
	}
	w.Member(workspaceID, user, perm.AccountAPIAccess, perm.AccountReadMembers)
	w.Exec("update account.webhooks set personal_data_for = null")
	if sent() {
		t.Error("the member is sent although it is no longer asked for")
	}
}

// W8: while Engage is off in the workspace, submissions cannot be read with the API either.
func TestW8_SubmissionIsNotSentWhileModuleIsOff(t *testing.T) {
	t.Parallel()
	w := postgrestest.New(t)
	store := open(t, w)
	workspaceID, user, id := w.Workspace(), w.User(), uuid.New()
	w.Member(workspaceID, user, perm.AccountAPIAccess, perm.EngageReadSubmissions)
	w.Exec(`insert into account.webhooks (id, tenant_id, user_id, url, types, secret, secret_key, position, created_at,
			personal_data_for)
		values ($1, $2, $3, 'https://hooks.example.invalid', '{submission.created}', '', '', 0, now(), $3)`,
		id, workspaceID, user)
	form, submission := uuid.New(), uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins)
		values ($1, $2, $1::uuid::text, 'x', '[]', '{}')`, form, workspaceID)
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		values ($1, $2, $3, gen_random_uuid(), '{}', '[]', false)`, submission, workspaceID, form)
	target, err := store.Webhooks().Target(t.Context(), workspaceID, id)
	if err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(map[string]uuid.UUID{"id": submission})
	if err != nil {
		t.Fatal(err)
	}
	for _, state := range []struct{ enabled, provisioned, want bool }{
		{true, true, true},
		{false, true, false},
		{true, false, false},
	} {
		w.Exec(`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
			values ($1, 'engage', $2, $3) on conflict (tenant_id, module) do update
			set enabled = excluded.enabled, provisioned = excluded.provisioned`,
			workspaceID, state.enabled, state.provisioned)
		e := event.Event{Type: "submission.created", Data: data}
		p, err := store.Webhooks().PersonalData(t.Context(), target, e)
		if err != nil || (p.Submission != nil) != state.want {
			t.Errorf("%+v: %+v %v", state, p, err)
		}
	}
}
