package gate

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

func (s *site) module() Module {
	s.t.Helper()
	cursors, err := rest.NewCursors(seal.NewKeys(bytes.Repeat([]byte{1}, 32)), CursorPurpose)
	testkit.Must(s.t, err)
	return Module{Gate: s.api, Cursors: cursors, Refusals: rest.Refusals{
		{Err: engage.ErrNotFound, As: apierr.New(apierr.NotFound, "There is no such form.")},
		{Err: rest.ErrStale, As: apierr.New(apierr.PreconditionFailed, "The form has changed.")},
	}}
}

// forms are the records of forms, with versions.
func (s *site) forms() Records[engage.Form, engage.Form] {
	return Records[engage.Form, engage.Form]{
		Module: s.module(),
		Need:   perm.EngageReadForms,
		Record: Itself[engage.Form],
		Name:   "forms",
		Page:   s.store.Engage().Forms,
		Position: func(f engage.Form) rest.Position {
			return rest.Position{CreatedAt: time.Time(f.CreatedAt), ID: f.ID}
		},
		NotFound: engage.ErrNotFound,
		Read:     s.store.Engage().Form,
		Version:  func(f engage.Form) int { return f.Version },
	}
}

// submissions are the submissions of a form, which have no versions.
func (s *site) submissions() Records[engage.SubmissionRecord, engage.SubmissionRecord] {
	return Records[engage.SubmissionRecord, engage.SubmissionRecord]{
		Module: s.module(),
		Need:   perm.EngageReadForms,
		Record: Itself[engage.SubmissionRecord],
		Name:   "submissions",
		Owner:  engage.ErrNotFound,
		Find: func(ctx context.Context, workspaceID, form uuid.UUID) error {
			_, err := s.store.Engage().Form(ctx, workspaceID, form)
			return err
		},
		PageOf: s.store.Engage().Submissions,
		Position: func(r engage.SubmissionRecord) rest.Position {
			return rest.Position{CreatedAt: time.Time(r.CreatedAt), ID: r.ID}
		},
		NotFound: engage.ErrNoSubmission,
		Read:     s.store.Submission,
	}
}

// insert adds forms to a workspace, the last one newest.
func (s *site) insert(workspaceID uuid.UUID, n int) []uuid.UUID {
	s.t.Helper()
	ids := make([]uuid.UUID, n)
	for i := range ids {
		ids[i] = uuid.Must(uuid.NewV7())
		s.Exec(`insert into resource.forms (id, tenant_id, embed_key, title, fields, allowed_origins, created_at)
			values ($1, $2, $3, 'A form', '[]', '{}', now() + $4 * interval '1 second')`,
			ids[i], workspaceID, ids[i].String(), i)
	}
	return ids
}

// lists serves the lists of forms and submissions.
func (s *site) lists() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/forms", s.forms().List())
	mux.Handle("/forms/{id}/submissions", s.submissions().List())
	return mux
}

// page reads a page of a list.
func (s *site) page(api http.Handler, path string) (ids []uuid.UUID, next string) {
	s.t.Helper()
	a := send(s.t, api, path, s.pat, s.workspaceID.String())
	var p struct {
		Data []struct{ ID uuid.UUID }
		Meta struct{ NextCursor string }
	}
	if err := json.Unmarshal(a.Body.Bytes(), &p); err != nil || a.Code != 200 {
		s.t.Errorf("%s: %d %s", path, a.Code, a.Body)
	}
	for _, one := range p.Data {
		ids = append(ids, one.ID)
	}
	return ids, p.Meta.NextCursor
}

func TestRecords_ListsPagesOfWorkspaceOrOwner(t *testing.T) {
	s := newSite(t)
	ids, other := s.insert(s.workspaceID, 3), s.insert(s.Workspace(), 1)
	api := s.lists()
	first, next := s.page(api, "/forms?limit=2")
	second, end := s.page(api, "/forms?limit=2&cursor="+next)
	if !slices.Equal(first, []uuid.UUID{ids[2], ids[1]}) || !slices.Equal(second, ids[:1]) || end != "" {
		t.Errorf("%v, %v, %q: not the forms of the workspace, newest first", first, second, end)
	}
	if all, end := s.page(api, "/forms"); len(all) != 3 || end != "" {
		t.Errorf("%v, %q", all, end)
	}
	if all, end := s.page(api, "/forms/"+ids[0].String()+"/submissions"); len(all) != 0 || end != "" {
		t.Errorf("%v, %q", all, end)
	}
	for path, status := range map[string]int{
		"/forms?limit=x":                                              400,
		"/forms/x/submissions?cursor=" + next:                         400,
		"/forms/" + ids[0].String() + "/submissions?cursor=" + next:   400,
		"/forms/x/submissions":                                        404,
		"/forms/" + uuid.NewString() + "/submissions":                 404,
		"/forms/" + other[0].String() + "/submissions":                404,
		"/forms/" + other[0].String() + "/submissions?offset=1":       400,
		"/forms/" + strings.ToUpper(ids[0].String()) + "/submissions": 200,
	} {
		if a := send(t, api, path, s.pat, s.workspaceID.String()); a.Code != status {
			t.Errorf("%s: %d %s, want %d", path, a.Code, a.Body, status)
		}
	}
	failing := s.forms()
	failing.Page = func(context.Context, uuid.UUID, rest.Range, func(engage.Form) bool) (rest.End, error) {
		return rest.End{More: true}, apierr.New(apierr.Unavailable, "The store does not answer.")
	}
	a := send(t, failing.List(), "/", s.pat, s.workspaceID.String())
	a.wants(t, "a page that cannot be read", http.StatusServiceUnavailable, "does not answer")
}

// A cursor is of the list of one workspace, or of one form of it (contract, section 6).
func TestRecords_CursorIsOfItsWorkspaceAndOwner(t *testing.T) {
	s := newSite(t)
	elsewhere, forms := s.Workspace(), s.insert(s.workspaceID, 2)
	s.Member(elsewhere, s.user, perm.EngageReadForms)
	s.Exec(`insert into resource.submissions (id, tenant_id, form_id, token_id, answers, consents, trapped)
		select gen_random_uuid(), $1, $2, gen_random_uuid(), '{}', '[]', false from generate_series(1, 2)`,
		s.workspaceID, forms[0])
	api := s.lists()
	ours, theirs := s.pat, s.PAT(elsewhere, s.user, perm.EngageReadForms).Reveal()
	one, other := "/forms/"+forms[0].String()+"/submissions", "/forms/"+forms[1].String()+"/submissions"
	for _, c := range []struct {
		list, from, pat string
		workspaceID     uuid.UUID
		status          int
	}{
		{"/forms", "/forms", ours, s.workspaceID, 200},
		{"/forms", "/forms", theirs, elsewhere, 400},
		{one, one, ours, s.workspaceID, 200},
		{other, one, ours, s.workspaceID, 400},
		{one, "/forms", ours, s.workspaceID, 400},
	} {
		_, next := s.page(api, c.from+"?limit=1")
		if next == "" {
			t.Fatalf("%s has no second page", c.from)
		}
		a := send(t, api, c.list+"?cursor="+next, c.pat, c.workspaceID.String())
		a.wants(t, c.list+" with a cursor of "+c.from, c.status, "")
	}
}

func TestRecords_ReadsOneOfWorkspace(t *testing.T) {
	s := newSite(t)
	id, other := s.insert(s.workspaceID, 1)[0].String(), s.insert(s.Workspace(), 1)[0].String()
	checked := s.forms()
	checked.Check = func(caller Caller, found engage.Form) error {
		if caller.User != s.user || found.ID.String() != id {
			t.Errorf("%+v, %+v", caller, found)
		}
		return apierr.New(apierr.Forbidden, "Not this one.")
	}
	whole := s.forms()
	whole.Version = nil
	api := http.NewServeMux()
	api.Handle("/forms/{id}", s.forms().One())
	api.Handle("/checked/{id}", checked.One())
	api.Handle("/whole/{id}", whole.One())
	api.Handle("/submissions/{id}", s.submissions().One())
	for _, c := range []struct {
		path   string
		header []string
		status int
	}{
		{"/forms/" + id, nil, 200},
		{"/forms/" + id, []string{"If-None-Match", `"1"`}, 304},
		{"/forms/" + id, []string{"If-Match", `"2"`}, 412},
		{"/forms/" + id, []string{"If-Match", `1`}, 400},
		{"/forms/" + id + "?fields=id", nil, 400},
		{"/forms/x?fields=id", nil, 400},
		{"/forms/x", nil, 404},
		{"/forms/" + uuid.NewString(), nil, 404},
		{"/forms/" + other, nil, 404},
		{"/checked/" + id, nil, 403},
		{"/checked/" + other, nil, 404},
		{"/submissions/x", nil, 404},
		{"/submissions/" + id, []string{"If-Match", `1`}, 404},
	} {
		a := send(t, api, c.path, s.pat, s.workspaceID.String(), c.header...)
		if a.Code != c.status || (a.Header().Get("ETag") != "") != (c.status < 400) {
			t.Errorf("%s %q: %d %v %s, want %d", c.path, c.header, a.Code, a.Header(), a.Body, c.status)
		}
	}
	a := send(t, api, "/whole/"+id, s.pat, s.workspaceID.String(), "If-Match", "1")
	if a.Code != 200 || a.Header().Get("ETag") != "" || !strings.Contains(a.Body.String(), id) {
		t.Errorf("a record without versions: %d %v %s", a.Code, a.Header(), a.Body)
	}
}

// A write with an Idempotency-Key that was answered is answered again, also if it is invalid now; what the caller may
// not do is never repeated. An invalid write changes nothing.
func TestWrites_LookUpKeyBeforeInvalidRequestIsRefused(t *testing.T) {
	s := newSite(t)
	mistake, runs := error(nil), 0
	writes := Writes[engage.Writer]{Module: s.module(), Need: perm.EngageReadForms, Once: s.store.Engage().Once}
	create := writes.Handler(
		UpTo(20), func(r *WriteRequest) rest.Effect[engage.Writer] {
			object := r.Object("application/json")
			r.Refuse(mistake)
			if r.Refused() != (len(object) == 0 || mistake != nil) {
				t.Errorf("%s: refused %t", r.Content, r.Refused())
			}
			return func(context.Context, engage.Writer) (rest.Answer, error) {
				runs++
				return rest.JSON(http.StatusCreated, r.User, nil)
			}
		})
	for _, c := range []struct {
		query, key, body string
		mistake          error
		status           int
		runs             int
		message          string
	}{
		{"", "", `{"a":1}`, nil, 201, 1, ""},
		{"", "one", `{"a":1}`, nil, 201, 1, ""},
		{"", "one", `{"a":1}`, nil, 201, 0, ""},
		{"", "one", `{"a":1}`, rest.Problems{"a": "Is wrong."}, 201, 0, ""},
		{"?a=b", "one", `{"a":1}`, nil, 201, 0, ""},
		{"", "one", `{"a":2}`, nil, 409, 0, "different body"},
		{"", "one", `{"a":1}`, apierr.New(apierr.Forbidden, "You may not."), 403, 0, "You may not."},
		{"", "two", `{"a":1}`, engage.ErrNotFound, 404, 0, "no such form"},
		{"?a=b", "two", `{"a":1}`, engage.ErrNotFound, 400, 0, ""},
		{"", "two", `{"a":1}`, nil, 201, 1, ""},
		{"", "", `{"a":1}`, engage.ErrNotFound, 404, 0, "no such form"},
		{"?a=b", "", `{"a":1}`, nil, 400, 0, ""},
		{"", "", `{`, engage.ErrNotFound, 400, 0, ""},
		{"", "", `{"a":1234567890123456}`, nil, 413, 0, "too large"},
		{"", "no key", `{"a":1}`, nil, 400, 0, "Idempotency-Key"},
	} {
		mistake, runs = c.mistake, 0
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/forms"+c.query, strings.NewReader(c.body))
		r.Header = http.Header{
			"Authorization": {"Bearer " + s.pat},
			"X-Tenant-Id":   {s.workspaceID.String()},
			"Content-Type":  {"application/json"},
		}
		if c.key != "" {
			r.Header.Set(rest.KeyHeader, c.key)
		}
		w := httptest.NewRecorder()
		create.ServeHTTP(w, r)
		replayed := c.status == 201 && c.runs == 0
		if w.Code != c.status || runs != c.runs || !strings.Contains(w.Body.String(), c.message) ||
			(w.Header().Get(rest.ReplayedHeader) != "") != replayed {
			t.Errorf("%+v: %d, run %d times, %v %s", c, w.Code, runs, w.Header(), w.Body)
		}
	}
}

// GET /v1/me says who a credential belongs to, where it works, and what it may do there now (contract, section 6a).
func TestMe_DescribesCredentialAndWhereItWorks(t *testing.T) {
	s := newSite(t)
	get := s.api.Me()["/v1/me"]["GET"]
	soon := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	token := s.grant(standing.Connector, perm.API, func(c *accesstoken.Claims) {
		c.Expires = soon
	}, perm.ProgrammesRead)
	later := s.grant(standing.Connector, perm.API, func(c *accesstoken.Claims) {
		c.Expires = time.Now().AddDate(1, 0, 0)
	}, perm.ProgrammesRead)
	type described struct {
		User       struct{ ID, Email string }
		Credential struct {
			Type      string
			ExpiresAt time.Time
		}
		Workspaces []meWorkspace
		Limits     struct{ RequestsInFlight int }
	}
	read := func(credential string) (m described) {
		t.Helper()
		a := send(t, get, "/v1/me", credential, "")
		if err := json.Unmarshal(a.Body.Bytes(), &m); err != nil || a.Code != 200 {
			t.Errorf("%d %s, %v", a.Code, a.Body, err)
		}
		return m
	}
	const ofToken = "select count(*) from account.personal_access_tokens where user_id = $2 and expires_at = $1"
	const ofGrant = `select count(*) from account.grants where user_id = $2 and ends_at = $1
		and created_at = (select max(created_at) from account.grants where user_id = $2)`
	for credential, want := range map[string]struct{ kind, permissions, ends string }{
		s.pat: {"personal_access_token", "programmes:read:programmes engage:read:forms", ofToken},
		token: {"access_token", "programmes:read:programmes", ""},
		later: {"access_token", "programmes:read:programmes", ofGrant},
	} {
		m := read(credential)
		ends := m.Credential.ExpiresAt
		if want.ends != "" {
			s.Wants(1, want.ends, ends, s.user)
		} else if !ends.Equal(soon) {
			t.Errorf("the access token ends at %s, want %s", ends, soon)
		}
		if m.User.ID != s.user.String() || m.User.Email == "" ||
			m.Limits.RequestsInFlight != 64 || m.Credential.Type != want.kind ||
			len(m.Workspaces) != 1 || m.Workspaces[0].ID != s.workspaceID ||
			strings.Join(m.Workspaces[0].Permissions, " ") != want.permissions {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
	send(t, get, "/v1/me", "", "").wants(t, "no credential", 401, "no credential")
	send(t, get, "/v1/me", s.pat[:len(s.pat)-1], "").wants(t, "invalid", 401, "not valid")
	send(t, get, "/v1/me?a=b", s.pat, "").wants(t, "unknown parameter", 400, "")
	s.RemoveMember(s.workspaceID, s.user)
	if m := read(s.pat); len(m.Workspaces) != 0 {
		t.Errorf("no member any more: %+v", m.Workspaces)
	}
	s.Exec("update account.personal_access_tokens set revoked_at = now() where user_id = $1", s.user)
	send(t, get, "/v1/me", s.pat, "").wants(t, "revoked", 401, "not valid")
}
