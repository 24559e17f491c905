package e2e

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/client"
)

// Spec 3, 4.5 and 7.2, contract section 6: writes of programmes.

// create creates a programme through the API.
func create(t *testing.T, api harness.API, body map[string]any) programme {
	t.Helper()
	var out programme
	api.JSON(t, http.MethodPost, programmes, body).Wants(t, http.StatusCreated).Into(t, &out)
	return out
}

func read(t *testing.T, api harness.API, id string) client.Programme {
	t.Helper()
	out, err := api.Client(t).Programmes.Get(t.Context(), id)
	if err != nil {
		t.Fatal(redactError(err))
	}
	return out
}

func TestCreate_ReturnsProgramme(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	made := create(
		t,
		api,
		map[string]any{
			"name":     "Night shelter",
			"summary":  "Beds from November",
			"startsOn": "2026-11-01",
			"endsOn":   "2027-03-31",
		},
	)
	if made.Name != "Night shelter" || made.Summary != "Beds from November" || *made.StartsOn != "2026-11-01" ||
		*made.EndsOn != "2027-03-31" {
		t.Errorf("not the values that were sent: %+v", made)
	}
	if _, err := uuid.Parse(made.ID); err != nil || time.Since(made.CreatedAt).Abs() > time.Minute ||
		!made.UpdatedAt.Equal(made.CreatedAt) {
		t.Errorf("wrong id or times: %+v", made)
	}
	bare := create(t, api, map[string]any{"name": "Name alone"})
	if bare.Status != "draft" || bare.StartsOn != nil || bare.EndsOn != nil || bare.Summary != "" {
		t.Errorf("a programme with only a name is %+v", bare)
	}
	if again := read(t, api, made.ID); again.Name != made.Name || !again.CreatedAt.Equal(made.CreatedAt) {
		t.Errorf("read back as %+v", again)
	}
	all := every(t, api)
	if len(all) != 2 || all[0].ID != bare.ID {
		t.Error("the list does not begin with the newest programme")
	}
}

func TestWrites_NeedWritePermission(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	made := create(t, p.In(ws.Workspace, ws.Token), map[string]any{"name": "Toy library"})
	one := programmes + "/" + made.ID
	reader := ws.Member(t, harness.ReadProgrammes)
	owner := p.Person(t, ws.Owner)
	attempt := ws.Connector(t, harness.ReadProgrammes, harness.WriteProgrammes).Begin()
	attempt.Query = change(attempt.Query, "scope", harness.ReadProgrammes)
	consented := attempt.Post(t, attempt.CodeForm(attempt.Code(t, owner))).Tokens(t)
	for name, token := range map[string]string{
		"token without it":    p.Database.Token(t, ws.Workspace, ws.Owner, harness.ReadProgrammes),
		"user without it":     p.Database.Token(t, ws.Workspace, reader, strings.Fields(attempt.Scope)...),
		"application without": ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, owner).AccessToken,
		"not consented to":    consented.AccessToken,
	} {
		t.Run(name, func(t *testing.T) {
			api := p.In(ws.Workspace, token)
			api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "x"}).
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			api.JSON(t, http.MethodPatch, one, map[string]any{"name": "x"}).
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			api.JSON(t, http.MethodPost, one+"/transitions", map[string]any{"to": "active"}).
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", "name\nx\n").
				WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			read(t, api, made.ID)
		})
	}
	if all := every(t, p.In(ws.Workspace, ws.Token)); len(all) != 1 || all[0].Name != "Toy library" {
		t.Error("a rejected write had an effect")
	}
}

func TestWrites_RejectInvalidBodies(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	made := create(t, api, map[string]any{"name": "Bike kitchen"})
	for name, body := range map[string]any{
		"malformed":        `{"name":`,
		"a list":           `[]`,
		"empty":            ``,
		"two objects":      `{"name":"x"}{}`,
		"name empty":       map[string]any{"name": ""},
		"name blank":       map[string]any{"name": "  "},
		"name a number":    map[string]any{"name": 7},
		"name null":        map[string]any{"name": nil},
		"summary a list":   map[string]any{"name": "x", "summary": []string{}},
		"date in words":    map[string]any{"name": "x", "startsOn": "tomorrow"},
		"no such day":      map[string]any{"name": "x", "startsOn": "2026-02-30"},
		"a time":           map[string]any{"name": "x", "startsOn": "2026-02-03T00:00:00Z"},
		"end before start": map[string]any{"name": "x", "startsOn": "2026-05-02", "endsOn": "2026-05-01"},
	} {
		t.Run(name, func(t *testing.T) {
			api.JSON(t, http.MethodPost, programmes, body).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
			api.JSON(t, http.MethodPatch, programmes+"/"+made.ID, body).
				WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
		})
	}
	api.JSON(t, http.MethodPost, programmes, map[string]any{"summary": "no name"}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	if all := every(t, api); len(all) != 1 || all[0].Name != "Bike kitchen" {
		t.Error("a rejected write had an effect")
	}
}

func TestPatch_ChangesNamedFields(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	made := create(t, api, map[string]any{"name": "Lunch club", "summary": "Tuesdays", "startsOn": "2026-01-06"})
	var after programme
	api.JSON(t, http.MethodPatch, programmes+"/"+made.ID, map[string]any{"summary": "Thursdays", "startsOn": nil}).
		Wants(t, http.StatusOK).
		Into(t, &after)
	if after.Name != "Lunch club" || after.Summary != "Thursdays" || after.StartsOn != nil ||
		!after.CreatedAt.Equal(made.CreatedAt) ||
		!after.UpdatedAt.After(made.UpdatedAt) {
		t.Errorf("patched to %+v", after)
	}
	// "Status changes by transitions alone (in a PATCH: 400)", even to the current status.
	for _, status := range []any{"active", "draft", nil, ""} {
		api.JSON(t, http.MethodPatch, programmes+"/"+made.ID, map[string]any{"name": "y", "status": status}).
			WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
	if now := read(t, api, made.ID); now.Status != "draft" || now.Name != "Lunch club" {
		t.Errorf("a rejected PATCH had an effect: %+v", now)
	}
}

// "draft→active→completed→archived, draft→archived", and 409 for all others.
func TestTransitions_OnlyAllowed(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	allowed := map[string]bool{
		"draft active":       true,
		"draft archived":     true,
		"active completed":   true,
		"completed archived": true,
	}
	states := []string{"draft", "active", "completed", "archived"}
	for _, from := range states {
		for _, to := range states {
			id := uuid.NewString()
			p.Database.Exec(t,
				`insert into resource.programmes (id, tenant_id, name, status) values ($1, $2, 'Any', $3)`, id,
				ws.Workspace.ID, from)
			answer := api.JSON(t, http.MethodPost, programmes+"/"+id+"/transitions", map[string]any{"to": to})
			want := client.ProgrammeStatus(from)
			if allowed[from+" "+to] {
				var after programme
				answer.Wants(t, http.StatusOK).Into(t, &after)
				if want = client.ProgrammeStatus(to); after.Status != to || after.ID != id {
					t.Errorf("%s → %s returned %+v", from, to, after)
				}
			} else {
				answer.WantsNested(t, http.StatusConflict, "CONFLICT")
			}
			if now := read(t, api, id); now.Status != want {
				t.Errorf("%s → %s: status is now %s", from, to, now.Status)
			}
		}
	}
	made := create(t, api, map[string]any{"name": "x"})
	for _, body := range []any{`{}`, `{"to":"gone"}`, `{"to":"Active"}`, `{"to":7}`, `{"to":null}`, `[]`, ``} {
		api.JSON(t, http.MethodPost, programmes+"/"+made.ID+"/transitions", body).
			WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	}
}

// "Unknown ID or path, or the record is not accessible to the caller" (spec 7.2)
func TestRecord_OfOtherWorkspaceIsNotFound(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	mine, theirs := p.In(ws.Workspace, ws.Token), p.In(other.Workspace, other.Token)
	foreign := create(t, theirs, map[string]any{"name": "Secret garden"}).ID
	var accepted struct{ ID, Status, StatusURL string }
	theirs.Send(t, http.MethodPost, programmes+"/imports", "text/csv", "name\nx\n").Wants(t, http.StatusAccepted).
		Into(t, &accepted)
	for _, id := range []string{foreign, uuid.NewString(), "nonsense", strings.Repeat("9", 300)} {
		mine.Get(t, programmes+"/"+id).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
		mine.JSON(t, http.MethodPatch, programmes+"/"+id, map[string]any{"name": "x"}).
			WantsNested(t, http.StatusNotFound, "NOT_FOUND")
		mine.JSON(t, http.MethodPost, programmes+"/"+id+"/transitions", map[string]any{"to": "active"}).
			WantsNested(t, http.StatusNotFound, "NOT_FOUND")
		mine.Get(t, programmes+"/imports/"+id).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	}
	mine.Get(t, programmes+"/imports/"+accepted.ID).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	if now := read(t, theirs, foreign); now.Name != "Secret garden" || now.Status != "draft" {
		t.Errorf("changed from another workspace: %+v", now)
	}
}
