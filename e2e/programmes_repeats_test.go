package e2e

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Contract, section 6: If-Match and Idempotency-Key, for concurrent changes and retries.

func TestIfMatch_StaleIsRejected(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	one := programmes + "/" + create(t, api, map[string]any{"name": "Tool bank"}).ID
	first := api.Get(t, one).Wants(t, http.StatusOK).Header.Get("ETag")
	if first == "" {
		t.Fatal("a programme without ETag, which If-Match needs")
	}
	changed := api.With("If-Match", first).JSON(t, http.MethodPatch, one, map[string]any{"summary": "mine"}).
		Wants(t, http.StatusOK)
	second := changed.Header.Get("ETag")
	if second == "" || second == first {
		t.Errorf("the ETag is %q after the change and was %q before", second, first)
	}
	stale := api.With("If-Match", first)
	stale.JSON(t, http.MethodPatch, one, map[string]any{"summary": "theirs"}).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	stale.JSON(t, http.MethodPost, one+"/transitions", map[string]any{"to": "active"}).
		WantsNested(t, http.StatusPreconditionFailed, "PRECONDITION_FAILED")
	if now := read(t, api, one[len(programmes)+1:]); now.Summary != "mine" || now.Status != "draft" {
		t.Errorf("a stale write had an effect: %+v", now)
	}
	api.With("If-Match", second).JSON(t, http.MethodPost, one+"/transitions", map[string]any{"to": "active"}).
		Wants(t, http.StatusOK)
	api.With("If-Match", "*").JSON(t, http.MethodPatch, one, map[string]any{"summary": "any"}).Wants(t, http.StatusOK)
}

func TestIdempotencyKey_RepeatsFirstResponse(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token).With("Idempotency-Key", "order-1")
	first := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Repair café"}).
		Wants(t, http.StatusCreated)
	for range 3 {
		again := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Repair café"}).
			Wants(t, http.StatusCreated)
		if string(again.Body) != string(first.Body) {
			t.Errorf("different response to the same key:\n%s", again)
		}
	}
	if all := every(t, api); len(all) != 1 {
		t.Errorf("%d programmes were created", len(all))
	}
	// Another key creates another programme. A transition that is not allowed twice returns its response twice.
	api.With("Idempotency-Key", "order-2").JSON(t, http.MethodPost, programmes, map[string]any{"name": "Repair café"}).
		Wants(t, http.StatusCreated)
	id, _ := first.Object(t)["id"].(string)
	for range 2 {
		api.JSON(t, http.MethodPost, programmes+"/"+id+"/transitions", map[string]any{"to": "active"}).
			Wants(t, http.StatusOK)
	}
}

func TestIdempotencyKey_PerWorkspaceUserAndRoute(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws, other := p.NewWorkspace(t), p.NewWorkspace(t)
	colleague := ws.Member(t, harness.Everything()...)
	member := p.Database.User(t)
	p.Database.Join(t, ws.Workspace, member, harness.Everything()...)
	p.Database.Join(t, other.Workspace, member, harness.Everything()...)
	ids := map[any]bool{}
	for _, api := range []harness.API{
		p.In(ws.Workspace, p.Database.Token(t, ws.Workspace, member, harness.Everything()...)),
		p.In(other.Workspace, p.Database.Token(t, other.Workspace, member, harness.Everything()...)),
		p.In(ws.Workspace, p.Database.Token(t, ws.Workspace, colleague, harness.Everything()...)),
	} {
		api = api.With("Idempotency-Key", "same")
		made := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Swap shop"}).
			Wants(t, http.StatusCreated).
			Object(t)
		ids[made["id"]] = true
		api.JSON(t, http.MethodPatch, programmes+"/"+made["id"].(string), map[string]any{"name": "Swap shop"}).
			Wants(t, http.StatusOK)
		api.Send(t, http.MethodPost, programmes+"/imports", "text/csv", "name\nx\n").Wants(t, http.StatusAccepted)
	}
	if len(ids) != 3 {
		t.Errorf("%d programmes, want 3", len(ids))
	}
}

// A key is "looked up after checks 1 to 4", so a caller who has lost access does not get the stored response. It is
// stored "for 2xx answers", so a request with errors can be corrected.
func TestIdempotencyKey_AfterAccessStoresOnlySuccess(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	plain := p.In(ws.Workspace, ws.Token)
	api := plain.With("Idempotency-Key", "k")
	api.JSON(t, http.MethodPost, programmes, map[string]any{"name": ""}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	body := map[string]any{"name": "Job club"}
	api.JSON(t, http.MethodPost, programmes, body).Wants(t, http.StatusCreated)
	api.Without("Authorization").JSON(t, http.MethodPost, programmes, body).
		WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	api.Without("X-Tenant-Id").JSON(t, http.MethodPost, programmes, body).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.ReadProgrammes)
	api.JSON(t, http.MethodPost, programmes, body).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
	p.Database.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
	p.Database.SetModule(t, ws.Workspace, false, true)
	api.JSON(t, http.MethodPost, programmes, body).WantsNested(t, http.StatusForbidden, "MODULE_NOT_ENABLED")
	p.Database.SetModule(t, ws.Workspace, true, true)
	api.JSON(t, http.MethodPost, programmes, body).Wants(t, http.StatusCreated)
	// The contract does not define the response for the key with another body. It must not have a second effect,
	// and it must not be the first response.
	other := api.JSON(t, http.MethodPost, programmes, map[string]any{"name": "Another"})
	if other.Status != http.StatusConflict {
		t.Errorf("the key with another body:\n%s", other)
	}
	if all := every(t, plain); len(all) != 1 {
		t.Errorf("%d programmes were created", len(all))
	}
	// The key expires after 24 hours.
	p.Database.Exec(
		t,
		`update resource.idempotency_keys set created_at = created_at - interval '24 hours 1 second'
				where tenant_id = $1`,
		ws.Workspace.ID,
	)
	api.JSON(t, http.MethodPost, programmes, body).Wants(t, http.StatusCreated)
	if all := every(t, plain); len(all) != 2 {
		t.Errorf("%d programmes after the key expired", len(all))
	}
}

func TestIdempotencyKey_ConcurrentHasOneEffect(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	api := p.In(ws.Workspace, ws.Token)
	answers := make(chan harness.Answer, 8)
	for range cap(answers) {
		go func() {
			answers <- api.With("Idempotency-Key", "race").
				JSON(t, http.MethodPost, programmes, map[string]any{"name": "Seed library"})
		}()
	}
	bodies := map[string]bool{}
	for range cap(answers) {
		bodies[string((<-answers).Wants(t, http.StatusCreated).Body)] = true
	}
	if all := every(t, api); len(all) != 1 || len(bodies) != 1 {
		t.Errorf("%d programmes, %d different responses", len(all), len(bodies))
	}
}
