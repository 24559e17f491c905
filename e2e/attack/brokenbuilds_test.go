package attack

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A brokenBuild is a build without one protection. It names the attack that then succeeds and the failure that its test
// reports.
type brokenBuild struct {
	name      string
	faults    []harness.Fault
	attack    string
	complaint string
}

func brokenBuilds() []brokenBuild {
	out := append(brokenTokens(), brokenPages()...)
	return append(out, brokenServers()...)
}

func brokenTokens() []brokenBuild {
	forged, spelling := "TestAccessToken_ForgeryIsRefusedEverywhere", "shared/contract/accesstoken/accesstoken.go"
	claims := "shared/contract/accesstoken/accesstoken.go"
	return []brokenBuild{
		{
			"typ not checked",
			[]harness.Fault{{File: spelling, Old: ` || h.Type != Type`, New: ``}},
			forged,
			"header: typ JWT is accepted by the API",
		},
		{
			"issuer not checked",
			[]harness.Fault{{File: claims, Old: ` || claims.Issuer != issuer`, New: ` || issuer == ""`}},
			forged,
			"claims: foreign iss is accepted by the API",
		},
		{
			"expiry not checked",
			[]harness.Fault{{File: claims, Old: `!now.Before(claims.Expires.Add(leeway))`, New: `now.IsZero()`}},
			forged,
			"claims: exp in the past is accepted by the API",
		},
		{"audience not checked", []harness.Fault{
			{
				File: "resourceapi/internal/gate/access.go",
				Old:  `claims.Audience != g.audience`,
				New:  `g.audience == ""`,
			}, {File: "shared/contract/standing/standing.go", Old: ` && *s.Resource == c.Audience`, New: ``},
		}, forged, "claims: aud with a slash is accepted by the API"},
		{
			"token claims not compared with the grant",
			[]harness.Fault{
				{
					File: "shared/contract/standing/standing.go",
					Old:  `s.UserID == c.Subject`,
					New:  `s.UserID != c.GrantID`,
				},
			},
			forged,
			"claims: sub of another user is accepted by the API",
		},
		{
			"redirect URI compared case-insensitively",
			[]harness.Fault{
				{
					File: "authserver/internal/oauth/client/client.go",
					Old:  `listed == uri ||`,
					New:  `strings.EqualFold(listed, uri) ||`,
				},
				{
					File: "authserver/internal/oauth/client/client.go",
					Old:  "\t\"slices\"\n",
					New:  "\t\"slices\"\n\t\"strings\"\n",
				},
			},
			"TestAuthorize_RedirectsOnlyToRegisteredURI",
			`"https://APP.canal-lane.example/oauth/callback": want a page, 400`,
		},
		{
			"token scope not limited by the grant",
			[]harness.Fault{
				{
					File: "resourceapi/internal/gate/access.go",
					Old:  `return s.CredentialPermissions.Intersect(p.claims.Scope)`,
					New:  `return p.claims.Scope`,
				},
			},
			"TestAccessToken_ClaimedScopeGrantsNothing",
			"a token claimed a permission beyond its grant",
		},
		{"PKCE optional", []harness.Fault{
			{
				File: "authserver/internal/oauth/engine/granttypes.go",
				Old:  `traits.PKCERequired && verifier == ""`,
				New:  `traits.PKCERequired && verifier == "?"`,
			},
			{
				File: "authserver/internal/store/redis/lua/exchange.lua",
				Old:  `elseif challenge ~= ARGV[6] then`,
				New:  `elseif ARGV[6] ~= '' and challenge ~= ARGV[6] then`,
			},
			{
				File: "authserver/internal/oauth/grant/tokens.go",
				Old:  "\th.Write([]byte(challenge))\n",
				New:  "\t_ = challenge\n",
			},
		}, "TestPKCE_VerifierIsRequiredAfterFailedAttempts", "a code was exchanged without its verifier"},
	}
}

func brokenPages() []brokenBuild {
	const pages = "authserver/internal/endpoint/ui/render.go"
	return []brokenBuild{
		{
			"cross-site forms accepted",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/ui/request.go",
					Old:  `return protection.Handler(next)`,
					New:  `return next`,
				},
			},
			"TestForms_CrossSitePostIsRefused",
			"from another site",
		},
		{
			"form keys of other sign-ins accepted",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/settings/request.go",
					Old:  `r.key.SignIn == r.user.SignInID`,
					New:  `r.key.SignIn != r.key.Makes`,
				},
			},
			"TestForms_KeyOfAnotherSignInIsRefused",
			"with this key: another user's: want 403",
		},
		{
			"session not renewed",
			[]harness.Fault{
				{
					File: "authserver/internal/signin/session/session.go",
					Old:  `s.manager.RenewToken(r.Context())`,
					New:  `r.Context().Err()`,
				},
			},
			"TestSession_CopiedCookieEndsWithSession",
			"reauthenticated: the copied cookie is still signed in",
		},
		{"names not escaped", []harness.Fault{
			{File: pages, Old: "\t\"html/template\"\n", New: "\t\"html/template\"\n\ttext \"text/template\"\n"},
			{File: pages, Old: `templates *template.Template`, New: `templates *text.Template`},
			{File: pages, Old: `template.New("")`, New: `text.New("")`},
		}, "TestMarkup_StoredNamesAreEscaped", "onerror"},
		{
			"framing allowed",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/ui/render.go",
					Old:  `; frame-ancestors 'none'; base-uri 'none'`,
					New:  `; base-uri 'none'`,
				},
			},
			"TestPages_ForbidFraming",
			"the policy lacks frame-ancestors 'none'",
		},
		{
			"open redirect by return",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/ui/request.go",
					Old:  `if len(text) > 1 && text[1] == '/' {`,
					New:  `if len(text) > 99 && text[1] == '/' {`,
				},
				{File: "authserver/internal/endpoint/ui/request.go", Old: ` || parsed.Host != ""`, New: ``},
			},
			"TestPages_DoNotRedirectOutOfTheApp",
			`redirects to "//evil.example"`,
		},
		{
			"other users' connections disconnected",
			[]harness.Fault{
				{
					File: "authserver/internal/store/postgres/credentials.go",
					Old:  `where g.user_id = $1 and g.state`,
					New:  `where $1::uuid is not null and g.state`,
				},
			},
			"TestForms_ChangeNothingOfOtherUsers",
			"changed something in the victim's workspace",
		},
		{
			"unknown user refused without hashing",
			[]harness.Fault{
				{
					File: "authserver/internal/signin/session/passwords.go",
					Old:  "\tif unknown {\n",
					New:  "\tif unknown {\n\t\treturn false, nil\n\t}\n\tif unknown {\n",
				},
			},
			"TestLogin_DoesNotRevealAccounts",
			"response time differs",
		},
	}
}

func brokenServers() []brokenBuild {
	return []brokenBuild{
		{
			"programmes of any workspace readable",
			[]harness.Fault{
				{
					File: "resourceapi/internal/store/postgres/programmes.go",
					Old:  `from resource.programmes where tenant_id = $1 and id = $2"` + "\n",
					New:  `from resource.programmes where $1::uuid is not null and id = $2"` + "\n",
				},
			},
			"TestAPI_ReachesNoOtherWorkspace",
			"sees the victim's data",
		},
		{
			"status of any submission readable",
			[]harness.Fault{
				{
					File: "resourceapi/internal/engage/submission.go",
					Old:  `err == nil && about == submission`,
					New:  `err == nil && about != uuid.Nil`,
				},
			},
			"TestPublicRoutes_RevealNothingOfOthers",
			"another submission's token reads the status",
		},
		{
			"two tenant headers accepted",
			[]harness.Fault{
				{File: "resourceapi/internal/gate/access.go", Old: `len(values) == 1`, New: `len(values) > 0`},
			},
			"TestTenantHeader_MustBeSingleAndWellFormed",
			"twice the same: ",
		},
		{
			"claimed address believed",
			[]harness.Fault{
				{
					File: "shared/net/web/request.go",
					Old:  `return prefix.Contains(address)`,
					New:  `return prefix.IsValid()`,
				},
			},
			"TestLoginLimit_IgnoresClaimedAddress",
			"an address that the caller claims is believed",
		},
		{
			"connection kept open after a chunked body",
			[]harness.Fault{
				{
					File: "shared/net/web/serve.go",
					Old:  `if len(r.TransferEncoding) > 0 {`,
					New:  `if len(r.TransferEncoding) > 9 {`,
				},
			},
			"TestGateway_RefusesSmuggledRequests",
			"a hidden request was served",
		},
		{
			"store errors returned",
			[]harness.Fault{
				{
					File: "shared/contract/apierr/apierr.go",
					Old:  `Detail{cmp.Or(e.Code, kinds[e.Kind].code), e.Message, e.Fields}`,
					New:  `Detail{cmp.Or(e.Code, kinds[e.Kind].code), e.Error(), e.Fields}`,
				},
			},
			"TestStoreErrors_AreLoggedNotReturned",
			`returns "canary" to the caller`,
		},
	}
}

// TestFaults_MatchSource checks that every fault matches the source.
func TestFaults_MatchSource(t *testing.T) {
	t.Parallel()
	for _, b := range brokenBuilds() {
		t.Run(b.name, func(t *testing.T) { harness.Faulty(t, b.faults...) })
	}
}

// TestAttacks_SucceedWithoutProtections removes all protections from one build. The attacks target different
// protections, so each must fail with its own message.
func TestAttacks_SucceedWithoutProtections(t *testing.T) {
	var faults []harness.Fault
	var attacks []string
	for _, b := range brokenBuilds() {
		faults, attacks = append(faults, b.faults...), append(attacks, b.attack)
	}
	output, _ := harness.RunAgainst(t, harness.Broken(t, faults...), "^("+strings.Join(attacks, "|")+")$", 1)
	for _, b := range brokenBuilds() {
		t.Run(b.name, func(t *testing.T) {
			if !strings.Contains(output, "--- FAIL: "+b.attack) || !strings.Contains(output, b.complaint) {
				t.Errorf("%s does not report %q", b.attack, b.complaint)
			}
		})
	}
	if t.Failed() {
		t.Logf("the run against the build without protections:\n%.20000s", harness.Redact(output))
	}
}
