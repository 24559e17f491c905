package attack

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A brokenBuild is a build without one protection. It names the attack that then succeeds and the failure that its test
// reports.
type brokenBuild struct {
	name, attack, complaint string
	faults                  []harness.Fault
}

func without(name, attack, complaint string, faults ...harness.Fault) brokenBuild {
	return brokenBuild{name, attack, complaint, faults}
}

func change(file, from, to string) harness.Fault {
	return harness.Fault{File: file, Old: from, New: to}
}

const (
	tokenFile    = "shared/contract/accesstoken/accesstoken.go"
	accessFile   = "resourceapi/internal/gate/access.go"
	standingFile = "shared/contract/standing/standing.go"
	clientFile   = "authserver/internal/oauth/client/client.go"
	requestFile  = "authserver/internal/endpoint/ui/request.go"
	renderFile   = "authserver/internal/endpoint/ui/render.go"
)

func brokenBuilds() []brokenBuild {
	const forged = "TestAccessToken_ForgeryIsRefusedEverywhere"
	return []brokenBuild{
		without("typ not checked", forged, `header: typ "JWT" is accepted by the API`,
			change(tokenFile, ` || h.Type != Type`, ``)),
		without("issuer not checked", forged, `claims: iss "https://evil.example" is accepted by the API`,
			change(tokenFile, ` || claims.Issuer != issuer`, ` || issuer == ""`)),
		without("expiry not checked", forged, "claims: exp 1",
			change(tokenFile, `!now.Before(claims.Expires.Add(leeway))`, `now.IsZero()`)),
		without("audience not checked", forged, `/v1/" is accepted by the API`,
			change(accessFile, `claims.Audience != g.audience`, `g.audience == ""`),
			change(standingFile, ` && *s.Resource == c.Audience`, ``)),
		without("token claims not compared with the grant", forged, `claims: sub "`,
			change(standingFile, `s.UserID == c.Subject`, `s.UserID != c.GrantID`)),
		without("redirect URI compared case-insensitively", "TestAuthorize_RedirectsOnlyToRegisteredURI",
			`"https://APP.canal-lane.example/oauth/callback": want a page, 400`,
			change(clientFile, `listed == uri ||`, `strings.EqualFold(listed, uri) ||`),
			change(clientFile, "\t\"slices\"\n", "\t\"slices\"\n\t\"strings\"\n")),
		without("token scope not limited by the grant", "TestAccessToken_ClaimedScopeGrantsNothing",
			"a token claimed a permission beyond its grant",
			change(accessFile, `return s.CredentialPermissions.Intersect(p.Claims.Scope)`, `return p.Claims.Scope`)),
		without("PKCE optional", "TestPKCE_VerifierIsRequiredAfterFailedAttempts",
			"a code was exchanged without its verifier",
			change("authserver/internal/oauth/engine/granttypes.go",
				`traits.PKCERequired && verifier == ""`, `traits.PKCERequired && verifier == "?"`),
			change("authserver/internal/store/redis/lua/exchange.lua",
				`elseif challenge ~= ARGV[6] then`, `elseif ARGV[6] ~= '' and challenge ~= ARGV[6] then`),
			change("authserver/internal/oauth/grant/tokens.go", "\th.Write([]byte(challenge))\n", "\t_ = challenge\n")),
		without("cross-site forms accepted", "TestForms_CrossSitePostIsRefused", "from another site",
			change(requestFile, `return protection.Handler(next)`, `return next`)),
		without("form keys of other sign-ins accepted", "TestForms_KeyOfAnotherSignInIsRefused",
			"with this key: another user's: want 403",
			change("authserver/internal/endpoint/settings/request.go",
				`r.key.SignIn == r.user.SignInID`, `r.key.SignIn != r.key.Makes`)),
		without("session not renewed", "TestSession_CopiedCookieEndsWithSession",
			"reauthenticated: the copied cookie is still signed in",
			change("authserver/internal/signin/session/session.go",
				`s.manager.RenewToken(r.Context())`, `r.Context().Err()`)),
		without("names not escaped", "TestMarkup_StoredNamesAreEscaped", "onerror",
			change(renderFile, "\t\"html/template\"\n", "\t\"html/template\"\n\ttext \"text/template\"\n"),
			change(renderFile, `templates *template.Template`, `templates *text.Template`),
			change(renderFile, `template.New("")`, `text.New("")`)),
		without("framing allowed", "TestPages_ForbidFraming", "the policy lacks frame-ancestors 'none'",
			change(renderFile, `; frame-ancestors 'none'; base-uri 'none'`, `; base-uri 'none'`)),
		without("open redirect by return", "TestPages_DoNotRedirectOutOfTheApp", `redirects to "//evil.example"`,
			change(requestFile, `if len(text) > 1 && text[1] == '/' {`, `if len(text) > 99 && text[1] == '/' {`),
			change(requestFile, ` || parsed.Host != ""`, ``)),
		without("other users' connections disconnected", "TestForms_ChangeNothingOfOtherUsers",
			"changed something in the victim's workspace",
			change("authserver/internal/store/postgres/credentials.go",
				`where g.user_id = $1 and g.state`, `where $1::uuid is not null and g.state`)),
		without("unknown user refused without hashing", "TestLogin_DoesNotRevealAccounts", "response time differs",
			change("authserver/internal/signin/session/passwords.go",
				"\tif unknown {\n", "\tif unknown {\n\t\treturn false, nil\n\t}\n\tif unknown {\n")),
		without("programmes of any workspace readable", "TestAPI_ReachesNoOtherWorkspace", "sees the victim's data",
			change("resourceapi/internal/store/postgres/programmes.go",
				`from resource.programmes where tenant_id = $1 and id = $2"`+"\n",
				`from resource.programmes where $1::uuid is not null and id = $2"`+"\n")),
		without("claimed address believed", "TestLoginLimit_IgnoresClaimedAddress",
			"an address that the caller claims is believed",
			change("shared/net/web/request.go", `return prefix.Contains(address)`, `return prefix.IsValid()`)),
		without("store errors returned", "TestStoreErrors_AreLoggedNotReturned", `returns "canary" to the caller`,
			change("shared/contract/apierr/apierr.go",
				`Detail{cmp.Or(e.Code, kinds[e.Kind].code), e.Message, e.Fields}`,
				`Detail{cmp.Or(e.Code, kinds[e.Kind].code), e.Error(), e.Fields}`)),
	}
}

func TestFaults_MatchSource(t *testing.T) {
	t.Parallel()
	for _, b := range brokenBuilds() {
		t.Run(b.name, func(t *testing.T) { harness.Faulty(t, b.faults...) })
	}
}

// TestAttacks_SucceedWithoutProtections removes all protections from one build, which runs one product: linking the
// services and starting them costs more than an attack. The changes are in one group because none of them can cause the
// failure that another one must: each complaint names a value, a page or a request that its own protection alone
// refuses, and no other change of the build touches that protection. A change that makes another's attack succeed, with
// the same complaint, needs a build of its own.
func TestAttacks_SucceedWithoutProtections(t *testing.T) {
	t.Parallel()
	var faults []harness.Fault
	var attacks []string
	for _, b := range brokenBuilds() {
		faults, attacks = append(faults, b.faults...), append(attacks, b.attack)
	}
	output, _ := harness.RunAgainst(t, harness.Broken(t, faults...), "^("+strings.Join(attacks, "|")+")$", 1)
	for _, b := range brokenBuilds() {
		t.Run(b.name, func(t *testing.T) {
			if !strings.Contains(output, "--- FAIL: "+b.attack) || !strings.Contains(output, b.complaint) {
				t.Errorf("with %s, %s does not report %q", b.name, b.attack, b.complaint)
			}
		})
	}
	if t.Failed() {
		t.Logf("the run against the build without protections:\n%.20000s", harness.Redact(output))
	}
}
