package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/deploy/local/demo"
	"github.com/almonerhq/almoner/e2e/harness"
)

// Spec 5 and 7.2, contract section 6: the order of the checks and their responses. The first check that fails
// decides.

const badQuery = "?limit=0&cursor=nonsense"

// wants401 checks the response to a missing or bad bearer token, with the challenge of RFC 9728.
func wants401(t *testing.T, p *harness.Product, answer harness.Answer) {
	t.Helper()
	answer.WantsNested(t, http.StatusUnauthorized, "UNAUTHENTICATED")
	challenge := answer.Header.Get("WWW-Authenticate")
	document := `resource_metadata="` + p.BaseURL + `/.well-known/oauth-protected-resource/v1"`
	if !strings.HasPrefix(challenge, "Bearer ") || !strings.Contains(challenge, document) {
		t.Errorf("WWW-Authenticate is %q, want Bearer with %s", challenge, document)
	}
}

func TestAccess_1ChecksBearer(t *testing.T) {
	t.Parallel()
	p := enter(t)
	main := p.Demo.Workspaces.Main.ID
	good := "Bearer " + p.Demo.Tokens.Reader
	with := func(values ...string) harness.API {
		return p.API().With("X-Tenant-Id", main).With("Authorization", values...)
	}
	for name, api := range map[string]harness.API{
		"none":                  p.API(),
		"none, with tenant":     p.API().With("X-Tenant-Id", main),
		"none, bad tenant":      p.API().With("X-Tenant-Id", "nonsense"),
		"empty":                 with(""),
		"no token":              with("Bearer"),
		"token alone":           with(p.Demo.Tokens.Reader),
		"Basic":                 with(harness.Basic("x", p.Demo.Tokens.Reader)),
		"unknown":               with("Bearer nonsense"),
		"unknown, no tenant":    p.As("nonsense"),
		"unknown, bad tenant":   p.As("nonsense").With("X-Tenant-Id", "nonsense"),
		"two headers":           with(good, good),
		"two in one":            with(good + ", " + good),
		"token and more":        with(good + " x"),
		"tab for the space":     with("Bearer\t" + p.Demo.Tokens.Reader),
		"disabled module":       p.As("nonsense").With("X-Tenant-Id", p.Demo.Workspaces.ProgrammesDisabled.ID),
		"unprovisioned":         p.As("nonsense").With("X-Tenant-Id", p.Demo.Workspaces.Unprovisioned.ID),
		"in a cookie":           p.API().With("X-Tenant-Id", main).With("Cookie", "access_token="+p.Demo.Tokens.Reader),
		"in X-Authorization":    p.API().With("X-Tenant-Id", main).With("X-Authorization", good),
		"proxy's authorization": p.API().With("X-Tenant-Id", main).With("Proxy-Authorization", good),
	} {
		t.Run(name, func(t *testing.T) {
			wants401(t, p, api.Get(t, programmes))
			wants401(t, p, api.Get(t, programmes+badQuery))
			wants401(t, p, api.Get(t, programmes+"?access_token="+p.Demo.Tokens.Reader))
			wants401(t, p, api.Get(t, programmes+"/"+uuid.NewString()))
			wants401(t, p, api.JSON(t, http.MethodPost, programmes, `{`))
		})
	}
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER "} { // RFC 9110, section 11.1: case-insensitive
		with(scheme+p.Demo.Tokens.Reader).Get(t, programmes).
			Wants(t, http.StatusOK)
	}
}

func TestAccess_2ChecksTenantHeader(t *testing.T) {
	t.Parallel()
	p := enter(t)
	reader := p.As(p.Demo.Tokens.Reader)
	main := p.Demo.Workspaces.Main.ID
	for name, api := range map[string]harness.API{
		"missing":    reader,
		"empty":      reader.With("X-Tenant-Id", ""),
		"a name":     reader.With("X-Tenant-Id", "Tideway Community Trust"),
		"cut":        reader.With("X-Tenant-Id", main[:35]),
		"longer":     reader.With("X-Tenant-Id", main+"0"),
		"no digit":   reader.With("X-Tenant-Id", "g"+main[1:]),
		"braces":     reader.With("X-Tenant-Id", "{"+main+"}"),
		"urn":        reader.With("X-Tenant-Id", "urn:uuid:"+main),
		"no hyphens": reader.With("X-Tenant-Id", strings.ReplaceAll(main, "-", "")),
		"two":        reader.With("X-Tenant-Id", main, p.Demo.Workspaces.Empty.ID),
		"two in one": reader.With("X-Tenant-Id", main+", "+main),
		"query only": reader.Without("X-Tenant-Id"),
	} {
		t.Run(name, func(t *testing.T) {
			for _, query := range []string{"", badQuery, "?tenant_id=" + main + "&X-Tenant-Id=" + main} {
				message := api.Get(t, programmes+query).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
				if !strings.Contains(strings.ToLower(message), "the tenant header is required") {
					t.Errorf("the message %q does not contain: the tenant header is required", message)
				}
			}
		})
	}
	// Only "no UUID" is rejected, and upper case is a UUID too (RFC 9562, section 4).
	reader.With("X-Tenant-Id", strings.ToUpper(main)).Get(t, programmes).Wants(t, http.StatusOK)
}

func TestAccess_3ChecksPermissions(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	w, workspace := p.Database, ws.Workspace
	token := func(user demo.User, permissions ...string) string { return w.Token(t, workspace, user, permissions...) }
	left := ws.Member(t, harness.ReadProgrammes)
	leftToken := token(left, harness.ReadProgrammes)
	w.Leave(t, workspace, left)
	off := p.NewWorkspace(t)
	connector := off.Connector(t, harness.ReadProgrammes).Connect(t, p.Person(t, off.Owner)).AccessToken
	w.SetLLM(t, off.Workspace, false)
	w.SetModule(t, off.Workspace, false, true)
	ofMember := token(ws.Member(t, harness.ReadForms), harness.ReadProgrammes)
	for name, api := range map[string]harness.API{
		"unknown workspace":  p.In(demo.Workspace{ID: uuid.NewString()}, ws.Token),
		"not a member":       p.In(p.Demo.Workspaces.Main, ws.Token),
		"no longer a member": p.In(workspace, leftToken),
		// the owner is a member there
		"token of another workspace":     p.In(p.Demo.Workspaces.Empty, p.Demo.Tokens.Owner),
		"permission outside the token":   p.In(workspace, token(ws.Owner, harness.ReadForms)),
		"permission missing now":         p.In(workspace, ofMember),
		"write is not read":              p.In(workspace, token(ws.Owner, harness.WriteProgrammes)),
		"no member, module disabled":     p.In(p.Demo.Workspaces.ProgrammesDisabled, ws.Token),
		"no member, not provisioned":     p.In(p.Demo.Workspaces.Unprovisioned, ws.Token),
		"connector, LLM off, module off": p.In(off.Workspace, connector),
		"outsider in main (demo)":        p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.OwnerIn.Empty),
		"permission missing, disabled too": p.In(off.Workspace,
			w.Token(t, off.Workspace, off.Owner, harness.ReadForms)),
	} {
		t.Run(name, func(t *testing.T) {
			api.Get(t, programmes).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			api.Get(t, programmes+badQuery).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
			api.Get(t, programmes+"/"+uuid.NewString()).WantsNested(t, http.StatusForbidden, "FORBIDDEN")
		})
	}
}

func TestAccess_4ChecksModule(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	both := p.In(ws.Workspace, ws.Token)
	p.Database.SetModule(t, ws.Workspace, false, false)
	disabled := p.In(p.Demo.Workspaces.ProgrammesDisabled, p.Demo.Tokens.OwnerIn.ProgrammesDisabled)
	unprovisioned := p.In(p.Demo.Workspaces.Unprovisioned, p.Demo.Tokens.OwnerIn.Unprovisioned)
	for _, path := range []string{programmes, programmes + badQuery, programmes + "/" + uuid.NewString()} {
		disabled.Get(t, path).WantsNested(t, http.StatusForbidden, "MODULE_NOT_ENABLED")
		both.Get(t, path).WantsNested(t, http.StatusForbidden, "MODULE_NOT_ENABLED")
		unprovisioned.Get(t, path).WantsNested(t, http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED")
	}
	disabled.JSON(t, http.MethodPost, programmes, `{`).WantsNested(t, http.StatusForbidden, "MODULE_NOT_ENABLED")
	unprovisioned.JSON(t, http.MethodPost, programmes, `{`).
		WantsNested(t, http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED")
		// Without a row the module is not enabled (spec 1: "must be enabled in the workspace").
	p.Database.Exec(t, `delete from account.tenant_modules where tenant_id = $1`, ws.Workspace.ID)
	both.Get(t, programmes).WantsNested(t, http.StatusForbidden, "MODULE_NOT_ENABLED")
}

func TestAccess_5ChecksParametersThenRecord(t *testing.T) {
	t.Parallel()
	p := enter(t)
	owner := p.In(p.Demo.Workspaces.Main, p.Demo.Tokens.Owner)
	owner.Get(t, programmes+badQuery).WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	unknown := programmes + "/" + uuid.NewString()
	owner.Get(t, unknown).WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	owner.JSON(t, http.MethodPatch, unknown, map[string]any{"name": ""}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	owner.JSON(t, http.MethodPatch, unknown, map[string]any{"name": "x"}).
		WantsNested(t, http.StatusNotFound, "NOT_FOUND")
	owner.JSON(t, http.MethodPost, unknown+"/transitions", map[string]any{"to": "gone"}).
		WantsNested(t, http.StatusBadRequest, "VALIDATION_ERROR")
	owner.JSON(t, http.MethodPost, unknown+"/transitions", map[string]any{"to": "active"}).
		WantsNested(t, http.StatusNotFound, "NOT_FOUND")
}

// "read at each request, never from a cache that can be stale": a change affects the next request.
func TestAccess_ReadOnEveryRequest(t *testing.T) {
	t.Parallel()
	p := enter(t)
	ws := p.NewWorkspace(t)
	owner, w := p.Person(t, ws.Owner), p.Database
	apis := []harness.API{
		p.In(ws.Workspace, ws.Token),
		p.In(ws.Workspace, ws.Confidential(t, "", harness.ReadProgrammes).Connect(t, owner).AccessToken),
		p.In(ws.Workspace, ws.Connector(t, harness.ReadProgrammes).Connect(t, owner).AccessToken),
	}
	all := func(status int, code string) {
		t.Helper()
		for _, api := range apis {
			if answer := api.Get(t, programmes); status == http.StatusOK {
				answer.Wants(t, status)
			} else {
				answer.WantsNested(t, status, code)
			}
		}
	}
	for range 2 {
		all(http.StatusOK, "")
		w.Permit(t, ws.Workspace, ws.Owner, harness.ReadForms)
		all(http.StatusForbidden, "FORBIDDEN")
		w.Permit(t, ws.Workspace, ws.Owner, harness.Everything()...)
		all(http.StatusOK, "")
		w.Leave(t, ws.Workspace, ws.Owner)
		all(http.StatusForbidden, "FORBIDDEN")
		w.Join(t, ws.Workspace, ws.Owner, harness.Everything()...)
		all(http.StatusOK, "")
		w.SetModule(t, ws.Workspace, false, true)
		all(http.StatusForbidden, "MODULE_NOT_ENABLED")
		w.SetModule(t, ws.Workspace, true, false)
		all(http.StatusServiceUnavailable, "TENANT_NOT_PROVISIONED")
		w.SetModule(t, ws.Workspace, true, true)
	}
}
