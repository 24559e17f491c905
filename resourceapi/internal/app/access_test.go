package app

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/standing"
	"github.com/almonerhq/almoner/shared/crypt/credential"
)

const resource = base + "/v1"

// expect checks a refusal: status, code, and its challenge.
func (a answer) expect(t testing.TB, status int, code, challenge string) answer {
	t.Helper()
	a.refuses(t, status, code)
	const named = `resource_metadata="` + metadata + `"`
	got := a.Header.Get("WWW-Authenticate")
	switch {
	case challenge == "" && got != "":
		t.Errorf("unexpected challenge: %s", got)
	case challenge == "none" && (strings.Contains(got, "error=") || !strings.Contains(got, named) ||
		!strings.HasPrefix(got, `Bearer realm="almoner"`)):
		t.Errorf("not the challenge of a request without a token: %s", got)
	case challenge != "" && challenge != "none" &&
		(!strings.Contains(got, `error="`+challenge+`"`) || !strings.Contains(got, named)):
		t.Errorf("not a challenge of %s: %s", challenge, got)
	}
	a.header(t, "Cache-Control", "no-store").header(t, "X-Content-Type-Options", "nosniff").
		header(t, "X-Request-Id", "*")
	return a
}

// metadata is the resource_metadata of every challenge.
const metadata = base + "/.well-known/oauth-protected-resource/v1"

// Step 1 of the contract's table: the header with the bearer token. gate tests the tokens in it.
func TestAPI_RequiresOneValidBearerToken(t *testing.T) {
	s, h := newReader(t)
	pat := h.token()
	for name, values := range map[string][]string{
		"no header":            nil,
		"empty header":         {""},
		"another scheme":       {"Basic dXNlcjpwYXNz"},
		"scheme alone":         {"Bearer"},
		"token without scheme": {pat},
		"tab for space":        {"Bearer\t" + pat},
		"two headers":          {"Bearer " + pat, "Bearer " + pat},
	} {
		t.Run(name, func(t *testing.T) {
			challenge := "none"
			if len(values) > 1 {
				challenge = "invalid_token"
			}
			h := http.Header{"X-Tenant-Id": {h["X-Tenant-Id"]}, "Authorization": values}
			s.send("GET", listPath, h, "").expect(t, 401, "UNAUTHENTICATED", challenge)
		})
	}
	for _, spelled := range []string{"Bearer ", "bearer ", "BEARER ", "Bearer   "} {
		s.get(listPath, h.with("Authorization", spelled+pat)).wants(t, 200)
	}
	bare := header{"X-Tenant-Id": h["X-Tenant-Id"], "Content-Type": "application/x-www-form-urlencoded"}
	s.get(listPath+"?access_token="+pat, bare).expect(t, 401, "UNAUTHENTICATED", "none")
	s.do("POST", listPath, bare, "access_token="+pat).expect(t, 401, "UNAUTHENTICATED", "none")
	for name, value := range map[string]string{
		"Proxy-Authorization": "Bearer " + pat,
		"Cookie":              "access_token=" + pat + "; Authorization=Bearer " + pat,
	} {
		s.get(listPath, bare.with(name, value)).expect(t, 401, "UNAUTHENTICATED", "none")
	}
}

func (s *service) unknownPAT() string {
	workspaceID, user := s.member()
	token := s.PAT(workspaceID, user).Reveal()
	s.Exec("delete from account.personal_access_tokens where user_id = $1", user)
	return token
}

// A credential whose user or grant cannot be used now. gate has those that were revoked and those that expired.
func TestAPI_RefusesEndedCredential(t *testing.T) {
	s := newService(t)
	for end, endsToken := range map[string]bool{
		"update account.grants set state = 'pending' where {mine}": false,
		"delete from account.grants where {mine}":                  false,
		`update account.users set disabled_at = now()
			where id in (select user_id from account.memberships where {mine})`: true,
	} {
		s := s.forTest(t)
		workspaceID, user := s.member(perm.ProgrammesRead)
		g := s.Grant(standing.Confidential, workspaceID, user, resource, perm.ProgrammesRead)
		granted, token := as(s.token(claims(g)), workspaceID), s.holding(workspaceID, user, perm.ProgrammesRead)
		s.get(listPath, granted).wants(t, 200)
		s.Exec(end)
		s.get(listPath, granted).expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		if a := s.get(listPath, token); endsToken {
			a.expect(t, 401, "UNAUTHENTICATED", "invalid_token")
		} else {
			a.wants(t, 200)
		}
	}
}

// The settings page shows when a credential was last used, even if the request was refused.
func TestAPI_RecordsCredentialUse(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member()
	used, unused := s.PAT(workspaceID, user), s.PAT(workspaceID, user)
	app := orFail(New(t.Context(), s.config, slog.New(slog.DiscardHandler)))(t)
	for _, token := range []string{used.Reveal(), unused.Reveal() + "x"} {
		request := httptest.NewRequest("GET", listPath, nil)
		request.Header.Set("Authorization", "Bearer "+token)
		app.Handler.ServeHTTP(httptest.NewRecorder(), request)
	}
	app.Close() // records the uses
	const recorded = `select count(*) from account.token_uses u
		join account.personal_access_tokens p on p.tenant_id = u.tenant_id and p.id = u.token_id where p.{mine}`
	s.Wants(1, recorded+" and hash = $1", credential.Hash(used.Reveal()))
	s.Wants(1, recorded)
}

// Before step 1: paths and methods.
func TestRoutes_CheckPathAndMethodBeforeCredential(t *testing.T) {
	s := newService(t)
	for _, path := range []string{
		"/",
		"/v1",
		"/v1/programmes",
		listPath + "/",
		"//v1/programmes/programmes",
		"/v1/programmes//programmes",
		"/v1/./programmes/programmes",
		"/v1/x/../programmes/programmes",
		"/v1/programmes/%70rogrammes",
		"/V1/programmes/programmes",
		"/programmes/programmes",
		listPath + "/a/b",
		listPath + "/a/transitions/",
		"/.well-known/oauth-protected-resource/",
		"/.well-known/oauth-protected-resource/v2",
	} {
		for _, method := range []string{"GET", "POST", "OPTIONS"} {
			s.do(method, path, nil, "").expect(t, 404, "NOT_FOUND", "")
		}
	}
	// TestO1_RoutesAreThoseDescribed has the methods of every path.
	s.do("BREW", listPath, nil, "").expect(t, 405, "METHOD_NOT_ALLOWED", "").header(t, "Allow", "GET, HEAD, POST")
}

// Step 3: the answer does not tell whether another workspace exists, or whether the user is a member of it.
func TestAPI_OtherWorkspacesAreAlike(t *testing.T) {
	s := newService(t)
	workspaceID, user := s.member(perm.ProgrammesRead)
	h := s.holding(workspaceID, user, perm.ProgrammesRead)
	elsewhere := s.Workspace()
	s.Member(elsewhere, user, perm.ProgrammesRead)
	in := func(other uuid.UUID) answer {
		t.Helper()
		return s.get(listPath, h.with("X-Tenant-Id", other.String())).expect(t, 403, "FORBIDDEN", "")
	}
	first := in(elsewhere)
	for _, other := range []uuid.UUID{s.Workspace(), uuid.New(), uuid.Nil} {
		in(other).is(t, first.Body)
	}
}
