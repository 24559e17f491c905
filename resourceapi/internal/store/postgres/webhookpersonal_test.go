package postgres

import (
	"encoding/json"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/resourceapi/internal/delivery"
)

// W8: while Engage is off in the workspace, submissions cannot be read with the API either.
func TestW8_SubmissionIsNotSentWhileModuleIsOff(t *testing.T) {
	t.Parallel()
	w, store := newStore(t)
	workspaceID := w.Workspace()
	form, submission := uuid.New(), uuid.New()
	w.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins)
		values ($1, $2, $1::uuid::text, 'x', '[]', '{}')`, form, workspaceID)
	w.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		values ($1, $2, $3, gen_random_uuid(), '{}', '[]', false)`, submission, workspaceID, form)
	data := orFail(json.Marshal(map[string]uuid.UUID{"id": submission}))(t)
	for _, state := range []struct{ enabled, provisioned, want bool }{
		{true, true, true},
		{false, true, false},
		{true, false, false},
	} {
		w.Exec(`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
			values ($1, 'engage', $2, $3) on conflict (tenant_id, module) do update
			set enabled = excluded.enabled, provisioned = excluded.provisioned`,
			workspaceID, state.enabled, state.provisioned)
		e := delivery.Event{Type: "submission.created", Data: data}
		p, err := store.Webhooks().PersonalData(t.Context(), workspaceID, e)
		if err != nil || (p.Submission != nil) != state.want {
			t.Errorf("%+v: %+v %v", state, p, err)
		}
	}
}
