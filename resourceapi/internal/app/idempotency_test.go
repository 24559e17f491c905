package app

import (
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

func (s *service) programmes() int {
	return s.rows("resource.programmes", "")
}

// replayed reports whether the answer is marked as given again.
func (a answer) replayed() bool { return a.Header.Get("Idempotency-Replayed") == "true" }

func TestIdempotency_SameKeyReturnsFirstAnswer(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	keyed := h.with("Idempotency-Key", uuid.NewString())
	first := s.do("POST", listPath, keyed, `{"name":"Warm Homes"}`)
	again := s.do("POST", listPath, keyed, `{"name":"Warm Homes"}`)
	if first.Status != 201 || again.Status != 201 || first.Body != again.Body ||
		first.Header.Get("Location") != again.Header.Get("Location") ||
		first.Header.Get("ETag") != again.Header.Get("ETag") || again.Header.Get("ETag") == "" || first.replayed() ||
		!again.replayed() || s.programmes() != 1 {
		t.Errorf("%d %s, then %d %s", first.Status, first.Body, again.Status, again.Body)
	}
	for _, other := range []string{`{"name":"Cold Homes"}`, `{"name": "Warm Homes"}`, ``, `rubbish`} {
		s.do("POST", listPath, keyed, other).expect(t, 409, "CONFLICT", "")
	}
	if s.programmes() != 1 {
		t.Error("a reused key had an effect")
	}
	another := h.with("Idempotency-Key", uuid.NewString())
	if a := s.do("POST", listPath, another, `{"name":"Warm Homes"}`); a.Status != 201 || a.Body == first.Body {
		t.Errorf("another key: %d %s", a.Status, a.Body)
	}

	// A repeated change that would fail now still gets the first answer.
	path := listPath + "/" + s.create(h, `{"name":"x"}`).ID.String()
	tag := s.get(path, h).Header.Get("ETag")
	moved := s.do("POST", path+"/transitions", keyed.with("If-Match", tag), `{"to":"active"}`)
	replayed := s.do("POST", path+"/transitions", keyed.with("If-Match", tag), `{"to":"active"}`)
	if moved.Status != 200 || replayed.Status != 200 || moved.Body != replayed.Body ||
		moved.replayed() || !replayed.replayed() {
		t.Errorf("%d %s, then %d %s", moved.Status, moved.Body, replayed.Status, replayed.Body)
	}
}

func TestIdempotency_KeyIsScopedToUserRouteAndWorkspace(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesWrite)
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesWrite)
	colleague := s.User()
	s.Member(workspaceID, colleague, perm.ProgrammesWrite)
	key := uuid.NewString()
	headers := func(workspaceID, user uuid.UUID) header {
		return as(s.PAT(workspaceID, user, perm.ProgrammesWrite).Reveal(), workspaceID).json().
			with("Idempotency-Key", key)
	}
	seen := map[string]bool{}
	for _, h := range []header{headers(workspaceID, user), headers(elsewhere, user), headers(workspaceID, colleague)} {
		a := s.do("POST", listPath, h, `{"name":"x"}`)
		if a.Status != 201 || seen[a.Body] {
			t.Errorf("%d %s", a.Status, a.Body)
		}
		seen[a.Body] = true
	}
	another := s.do("POST", listPath, headers(workspaceID, user), `{"name":"x"}`)
	if another.Status != 201 || !seen[another.Body] {
		t.Errorf("another token of the same user: %d %s", another.Status, another.Body)
	}
	var p one
	another.decode(t, &p)
	for _, route := range []string{"PATCH " + listPath + "/" + p.ID.String(), "POST " + listPath + "/imports"} {
		method, path, _ := strings.Cut(route, " ")
		if a := s.do(method, path, headers(workspaceID, user), `{"name":"x"}`); a.Status == 409 || a.Status == 201 {
			t.Errorf("%s: %d %s", route, a.Status, a.Body)
		}
	}
}

func TestIdempotency_StoresSuccessOnlyAfterGate(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesWrite)
	token := s.PAT(workspaceID, user, perm.ProgrammesWrite).Reveal()
	h := as(token, workspaceID).json().with("Idempotency-Key", "one")
	s.do("POST", listPath, h, `{"name":""}`).wants(t, 400)
	first := s.do("POST", listPath, h, `{"name":"x"}`)
	first.wants(t, 201)
	keyed := header{"Idempotency-Key": "one"}.json()
	s.do("POST", listPath, keyed.with("X-Tenant-Id", workspaceID.String()), `{"name":"x"}`).
		expect(t, 401, "UNAUTHENTICATED", "none")
	s.do("POST", listPath, keyed.with("Authorization", "Bearer "+token), `{"name":"x"}`).
		expect(t, 400, "VALIDATION_ERROR", "").
		has(t, "the tenant header is required")
	s.Member(workspaceID, user)
	s.do("POST", listPath, h, `{"name":"x"}`).expect(t, 403, "FORBIDDEN", "")
	s.Member(workspaceID, user, perm.ProgrammesWrite)
	s.Exec("update account.tenant_modules set enabled = false where {mine}")
	s.do("POST", listPath, h, `{"name":"x"}`).expect(t, 403, "MODULE_NOT_ENABLED", "")
	s.Exec("update account.tenant_modules set enabled = true where {mine}")

	s.Exec("update resource.idempotency_keys set created_at = now() - interval '23 hours 59 minutes' where {mine}")
	if a := s.do("POST", listPath, h, `{"name":"x"}`); a.Body != first.Body {
		t.Errorf("within a day: %d %s", a.Status, a.Body)
	}
	s.Exec("update resource.idempotency_keys set created_at = now() - interval '24 hours' where {mine}")
	if a := s.do("POST", listPath, h, `{"name":"y"}`); a.Status != 201 || a.Body == first.Body {
		t.Errorf("after a day: %d %s", a.Status, a.Body)
	}
	if a := s.do("POST", listPath, h, `{"name":"y"}`); a.Status != 201 || s.programmes() != 2 {
		t.Errorf("the key after it expired: %d %s", a.Status, a.Body)
	}
	for _, wrong := range []string{"", "two words", "é", strings.Repeat("k", 256)} {
		s.do("POST", listPath, h.with("Idempotency-Key", wrong), `{"name":"z"}`).wants(t, 400)
	}
}

func TestIdempotency_ConcurrentRequestsHaveOneEffect(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	for range 10 {
		before := s.programmes()
		keyed := h.with("Idempotency-Key", uuid.NewString())
		answers := make([]answer, 10)
		var group sync.WaitGroup
		for i := range answers {
			group.Go(func() { answers[i] = s.insist("POST", listPath, keyed, `{"name":"x"}`) })
		}
		group.Wait()
		replayed := 0
		for _, a := range answers {
			if a.Status != 201 || a.Body != answers[0].Body {
				t.Fatalf("%d %s\n%d %s", answers[0].Status, answers[0].Body, a.Status, a.Body)
			}
			if a.replayed() {
				replayed++
			}
		}
		if replayed != len(answers)-1 {
			t.Fatalf("%d of %d answers are marked as given again", replayed, len(answers))
		}
		if made := s.programmes() - before; made != 1 {
			t.Fatalf("%d programmes", made)
		}
	}
}

func TestIdempotency_PathThatIsNotUTF8Is404(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	for _, id := range []string{"%00", "%ff", "%0a"} {
		keyed := h.with("Idempotency-Key", uuid.NewString())
		s.do("POST", listPath+"/"+id+"/transitions", keyed, `{"to":"active"}`).expect(t, 404, "NOT_FOUND", "")
		s.do("PATCH", listPath+"/"+id, keyed, `{"name":"x"}`).expect(t, 404, "NOT_FOUND", "")
	}
}

// The route of a key is indexed, and the length of an index entry is limited.
func TestIdempotency_LongPath(t *testing.T) {
	s := newService(t)
	_, h := s.editor()
	long := strings.Repeat(strings.ReplaceAll(uuid.NewString(), "-", ""), 2)
	for range 7 {
		long += strings.ReplaceAll(uuid.NewString()+uuid.NewString(), "-", "") + long
	}
	keyed := h.with("Idempotency-Key", strings.Repeat("k", 255))
	s.do("PATCH", listPath+"/"+long[:6000], keyed, `{"name":"x"}`).expect(t, 404, "NOT_FOUND", "")
	var id, other strings.Builder
	for n := range 200 {
		id.WriteRune(rune(0x1F300 + n*3))
		other.WriteRune(rune(0x1F300 + n*2))
	}
	first := s.do("PUT", listPath+"/external/"+url.PathEscape(id.String()), keyed, `{"name":"One"}`)
	again := s.do("PUT", listPath+"/external/"+url.PathEscape(id.String()), keyed, `{"name":"One"}`)
	third := s.do("PUT", listPath+"/external/"+url.PathEscape(other.String()), keyed, `{"name":"Two"}`)
	if first.Status != 201 || first.replayed() || again.Status != 201 || !again.replayed() || third.Status != 201 ||
		third.replayed() {
		t.Errorf("%d %s; %d %s; %d %s", first.Status, first.Body, again.Status, again.Body, third.Status, third.Body)
	}
}
