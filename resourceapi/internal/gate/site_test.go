package gate

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/accesstoken"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/testkit"

	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres"
	"github.com/almonerhq/almoner/resourceapi/internal/store/postgres/postgrestest"
)

// A running is what the tests of this package share: a database, its store, and the key of access tokens.
type running struct {
	database *postgrestest.Fixture
	store    *postgres.Store
	key      signingKey
	keys     *Keys
}

var shared = testkit.Once(func(t testing.TB) *running {
	r := &running{database: postgrestest.New(t), key: newKey(t, postgrestest.KeyID)}
	var err error
	r.store, err = postgres.Open(context.Background(), r.database.URL(),
		postgres.Limits{Connections: 8, Wait: testkit.StoreWait})
	testkit.Must(t, err)
	r.keys = NewKeys(newAuthserver(t, r.key).URL, issuer, slog.New(slog.DiscardHandler), time.Now)
	return r
})

// A site is the gates of both resources, and an organisation of the test's own with a workspace and a member of it who
// may read programmes and forms.
type site struct {
	*postgrestest.Fixture
	*running
	t           *testing.T
	api, mcp    *Gate
	log         testkit.Log
	workspaceID uuid.UUID
	user        uuid.UUID
	used        []standing.Standing
	caller      Caller // of the last request that was served
	pat         string // of the member, for both permissions
}

func newSite(t *testing.T) *site {
	t.Helper()
	r := shared(t)
	s := &site{Fixture: r.database.For(t), running: r, t: t}
	s.workspaceID, s.user = s.Workspace(), s.User()
	s.Member(s.workspaceID, s.user, perm.ProgrammesRead, perm.EngageReadForms)
	s.pat = s.PAT(s.workspaceID, s.user, perm.ProgrammesRead, perm.EngageReadForms).Reveal()
	deps := Deps{
		BaseURL:   issuer,
		Keys:      r.keys,
		Standings: r.store,
		RecordUse: func(used standing.Standing, _ netip.Addr) { s.used = append(s.used, used) },
		Bounds:    NewBounds(1),
		Log:       slog.New(slog.NewTextHandler(&s.log, nil)),
	}
	deps.Resource = API
	s.api = New(deps)
	deps.Resource = MCP
	s.mcp = New(deps)
	return s
}

// miscopied returns a stored token of the member whose checksum is wrong: only the checksum can refuse it.
func (s *site) miscopied() string {
	s.t.Helper()
	pat := s.PAT(s.workspaceID, s.user, perm.ProgrammesRead).Reveal()
	last := "A"
	if strings.HasSuffix(pat, last) {
		last = "B"
	}
	wrong := pat[:len(pat)-1] + last
	s.Exec("update account.personal_access_tokens set hash = $1 where hash = $2", credential.Hash(wrong),
		credential.Hash(pat))
	return wrong
}

// grant returns an access token of a new grant of the member, with the claims changed.
func (s *site) grant(
	kind string, resource perm.Resource, change func(*accesstoken.Claims), granted ...perm.Permission,
) string {
	s.t.Helper()
	g := s.Grant(kind, s.workspaceID, s.user, issuer+string(resource), granted...)
	claims := accesstoken.Claims{
		Issuer:      issuer,
		Subject:     g.User,
		Audience:    g.Resource,
		Expires:     time.Now().Add(time.Hour),
		IssuedAt:    time.Now(),
		ID:          uuid.NewString(),
		ClientID:    g.Client.String(),
		Scope:       g.Permissions,
		WorkspaceID: g.WorkspaceID,
		GrantID:     g.ID,
	}
	if change != nil {
		change(&claims)
	}
	return s.key.sign(s.t, claims)
}

// An answer is a response.
type answer struct {
	*httptest.ResponseRecorder
	code, message, challenge string
}

// send sends a GET request with the credential and the workspace, unless they are "".
func send(t *testing.T, h http.Handler, path, credential, workspace string, header ...string) answer {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
	if credential != "" {
		r.Header.Set("Authorization", "Bearer "+credential)
	}
	if workspace != "" {
		r.Header.Set(WorkspaceHeader, workspace)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	a := answer{ResponseRecorder: httptest.NewRecorder()}
	h.ServeHTTP(a, r)
	var body struct {
		Error struct{ Code, Message string }
	}
	_ = json.Unmarshal(a.Body.Bytes(), &body) // not every answer is an error
	a.code, a.message, a.challenge = body.Error.Code, body.Error.Message, a.Header().Get("WWW-Authenticate")
	return a
}

// served is a route with nothing to prepare, which answers 204.
func (s *site) served() Prepare {
	return ServingAnyQuery(func(w http.ResponseWriter, _ *http.Request, caller Caller) error {
		s.caller = caller
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}

// ask sends a request of the workspace to a route of the API.
func (s *site) ask(need perm.Permission, credential string) answer {
	s.t.Helper()
	return send(s.t, s.api.Guard(need, s.served()), "/", credential, s.workspaceID.String())
}

// wants checks the status and a part of the message.
func (a answer) wants(t *testing.T, what string, status int, message string) {
	t.Helper()
	if a.Code != status || !strings.Contains(a.message, message) {
		t.Errorf("%s: %d %s %q %s, want %d %q", what, a.Code, a.code, a.message, a.challenge, status, message)
	}
}
