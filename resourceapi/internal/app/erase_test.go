package app

import (
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

const (
	submissionsPath = "/v1/engage/submissions"
	supportersPath  = "/v1/engage/supporters"
)

// erasures counts the audit events of an action, and fails if one has what was erased.
func (s *service) erasures(action string) int {
	s.t.Helper()
	if s.rows("account.audit_events", "detail::text ilike '%example.org%'") > 0 {
		s.t.Error("an audit event has what was erased")
	}
	return s.rows("account.audit_events", "action = $1", action)
}

func TestErase_Draft(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	_, elsewhere := s.editor()
	path := listPath + "/" + s.create(h, `{"name":"x"}`).ID.String()
	active := listPath + "/" + s.create(h, `{"name":"x","status":"active"}`).ID.String()
	s.do("DELETE", path, elsewhere, "").expect(t, 404, "NOT_FOUND", "")
	s.do("DELETE", active, h, "").expect(t, 409, "CONFLICT", "")
	keyed := h.with("Idempotency-Key", uuid.NewString())
	if a := s.do("DELETE", path, keyed, ""); a.Status != 204 || a.Body != "" || a.replayed() {
		t.Errorf("%d %s", a.Status, a.Body)
	}
	if a := s.do("DELETE", path, keyed, ""); a.Status != 204 || a.Body != "" || !a.replayed() {
		t.Errorf("the same key: %d %s", a.Status, a.Body)
	}
	s.do("DELETE", path, h, "").expect(t, 404, "NOT_FOUND", "")
	if s.erasures("programme.erased") != 1 || s.programmes() != 1 {
		t.Errorf("%d events, %d programmes", s.erasures("programme.erased"), s.programmes())
	}
}

func TestErase_SubmissionFormAndSupporter(t *testing.T) {
	s := newService(t)
	workspaceID, h := s.workspace()
	_, elsewhere := s.workspace()
	f := s.makeForm(h, allTypes)
	other := s.makeForm(h, allTypes)
	id := s.accepted(f).ID.String()
	s.accepted(f)
	s.accepted(f)
	s.accepted(other)
	if err := s.kept().Process(t.Context(), uuid.Nil, uuid.MustParse(id)); err != nil {
		t.Fatal(err)
	}
	path := submissionsPath + "/" + id
	s.get(path, h).wants(t, 200, id, `"status":"processed"`)
	s.get(path, elsewhere).expect(t, 404, "NOT_FOUND", "")
	people := s.get(supportersPath, h)
	people.wants(t, 200, `"email":"ada@example.org"`)
	var list struct{ Data []struct{ ID string } }
	people.decode(t, &list)
	person := supportersPath + "/" + list.Data[0].ID
	s.get(person, h).wants(t, 200, `"email":"ada@example.org"`)
	for _, p := range []string{path, person, formsPath + "/" + f.ID.String()} {
		s.do("DELETE", p, elsewhere, "").expect(t, 404, "NOT_FOUND", "")
	}
	formsOnly := s.holder(workspaceID, perm.EngageReadForms, perm.EngageWriteForms)
	s.do("DELETE", formsPath+"/"+f.ID.String(), formsOnly, "").expect(t, 403, "FORBIDDEN", "")
	s.do("DELETE", path, formsOnly, "").expect(t, 403, "FORBIDDEN", "")

	counts := func(a answer, n string) {
		t.Helper()
		if a.Status != 200 || strings.TrimSpace(a.Body) != `{"deletedSubmissions":`+n+`}` {
			t.Errorf("%d %s, want %s", a.Status, a.Body, n)
		}
	}
	s.do("DELETE", path, h, "").wants(t, 204)
	s.do("DELETE", path, h, "").expect(t, 404, "NOT_FOUND", "")
	counts(s.do("DELETE", formsPath+"/"+f.ID.String(), h, ""), "2")
	s.do("DELETE", formsPath+"/"+f.ID.String(), h, "").expect(t, 404, "NOT_FOUND", "")
	// The submission to the other form waits to be processed, and is of the same address.
	counts(s.do("POST", supportersPath+"/erase", h, `{"email":" ADA@example.org "}`), "1")
	counts(s.do("POST", supportersPath+"/erase", h, `{"email":"ada@example.org"}`), "0")
	for _, wrong := range []string{`{}`, `{"email":"x"}`, `{"email":7}`, `{"email":"a@b","x":1}`, ``} {
		s.do("POST", supportersPath+"/erase", h, wrong).expect(t, 400, "VALIDATION_ERROR", "")
	}
	s.do("DELETE", person, h, "").expect(t, 404, "NOT_FOUND", "")
	if n := s.rows("resource.submissions", "") +
		s.rows("resource.supporters", ""); n != 0 {
		t.Errorf("%d records remain", n)
	}
	if s.erasures("submission.erased") != 1 || s.erasures("form.erased") != 1 || s.erasures("supporter.erased") != 1 {
		t.Error("not one event for each erasure")
	}
}
