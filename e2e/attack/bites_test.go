package attack

import (
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// A bite is a protection that a build lacks, the attack that then succeeds, and what its test must complain of.
type bite struct {
	name      string
	faults    []harness.Fault
	attack    string
	complaint string
}

func bites() []bite {
	out := append(bitesOfTokens(), bitesOfThePages()...)
	return append(out, bitesOfTheServer()...)
}

func bitesOfTokens() []bite {
	forged, spelling, claims := "TestForgedAccessTokensAreRefusedEverywhere", "shared/accesstoken/spelling.go", "shared/accesstoken/accesstoken.go"
	return []bite{
		{
			"typ not checked",
			[]harness.Fault{{File: spelling, Old: ` || h.Type != Type`, New: ``}},
			forged,
			"header: typ JWT is taken by the API",
		},
		{
			"issuer not checked",
			[]harness.Fault{{File: claims, Old: ` || claims.Issuer != issuer`, New: ` || issuer == ""`}},
			forged,
			"claims: iss of somebody else is taken by the API",
		},
		{
			"expiry not checked",
			[]harness.Fault{{File: claims, Old: `!now.Before(claims.Expires.Add(leeway))`, New: `now.IsZero()`}},
			forged,
			"claims: exp over is taken by the API",
		},
		{"audience not checked", []harness.Fault{
			{
				File: "resourceapi/internal/gate/presented.go",
				Old:  `claims.Audience != g.resource`,
				New:  `g.resource == ""`,
			}, {File: "shared/standing/claims.go", Old: ` && *s.Resource == c.Audience`, New: ``},
		}, forged, "claims: aud with a slash is taken by the API"},
		{
			"what a token says not compared with its grant",
			[]harness.Fault{
				{File: "shared/standing/claims.go", Old: `s.UserID == c.Subject`, New: `s.UserID != c.GrantID`},
			},
			forged,
			"claims: sub of another is taken by the API",
		},
		{"redirect URI compared in any case", []harness.Fault{
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
		}, "TestCodeGoesToTheRegisteredURIAlone", `"https://APP.canal-lane.example/oauth/callback": want a page, 400`},
		{
			"scope of the token's own choice",
			[]harness.Fault{
				{
					File: "resourceapi/internal/gate/presented.go",
					Old:  `return s.CredentialPermissions.Intersect(p.claims.Scope)`,
					New:  `return p.claims.Scope`,
				},
			},
			"TestTokenThatClaimsMorePermissionsGetsNone",
			"a permission out of thin air",
		},
		{"PKCE where the client feels like it", []harness.Fault{
			{
				File: "authserver/internal/oauth/engine/handlers.go",
				Old:  `traits.PKCERequired && x.request.Verifier == ""`,
				New:  `traits.PKCERequired && x.request.Verifier == "?"`,
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
		}, "TestVerifierIsWantedHoweverOftenItWasWrong", "a code without its verifier"},
	}
}

func bitesOfThePages() []bite {
	return []bite{
		{
			"forms of other sites taken",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/ui/faults.go",
					Old:  `return protection.Handler(next)`,
					New:  `return next`,
				},
			},
			"TestFormsOfOtherSitesDoNothing",
			"from another site",
		},
		{
			"forms of other sign-ins taken",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/settings/request.go",
					Old:  `key.SignIn == v.SignInID`,
					New:  `key.SignIn != key.Makes`,
				},
			},
			"TestFormsWithoutTheSignInsKeyDoNothing",
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
			"TestCopiedCookieDiesWithItsSession",
			"proved anew: the copied cookie is still signed in",
		},
		{"names not escaped", []harness.Fault{
			{
				File: "authserver/internal/endpoint/ui/render.go",
				Old:  "\t\"html/template\"\n",
				New:  "\t\"text/template\"\n",
			},
			{
				File: "authserver/internal/endpoint/ui/functions.go",
				Old:  "\t\"html/template\"\n",
				New:  "\t\"text/template\"\n",
			},
		}, "TestNamesAreTextOnEveryPage", "onerror"},
		{
			"pages in frames",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/ui/render.go",
					Old:  `; frame-ancestors 'none'; base-uri 'none'`,
					New:  `; base-uri 'none'`,
				},
			},
			"TestNoPageIsFramed",
			"the policy lacks frame-ancestors 'none'",
		},
		{
			"return leads anywhere",
			[]harness.Fault{
				{
					File: "authserver/internal/endpoint/ui/localpath.go",
					Old:  `if len(text) > 1 && text[1] == '/' {`,
					New:  `if len(text) > 99 && text[1] == '/' {`,
				},
				{File: "authserver/internal/endpoint/ui/localpath.go", Old: ` || parsed.Host != ""`, New: ``},
			},
			"TestNoPageLeadsOutOfTheApp",
			`led to "//evil.example"`,
		},
		{
			"other people's connections disconnected",
			[]harness.Fault{
				{
					File: "authserver/internal/store/postgres/connectedapps.go",
					Old:  `where g.user_id = $1 and`,
					New:  `where $1::uuid is not null and`,
				},
			},
			"TestFormsReachNothingOfOthers",
			"changed something in the victim's workspace",
		},
		{
			"nobody refused at once",
			[]harness.Fault{
				{
					File: "authserver/internal/signin/session/passwords.go",
					Old:  "\tif unknown {\n",
					New:  "\tif unknown {\n\t\treturn false, nil\n\t}\n\tif unknown {\n",
				},
			},
			"TestNobodyLearnsWhoHasAnAccount",
			"time tells",
		},
	}
}

func bitesOfTheServer() []bite {
	return []bite{
		{
			"programmes of any workspace",
			[]harness.Fault{
				{
					File: "resourceapi/internal/store/postgres/programmes.go",
					Old:  `from resource.programmes where tenant_id = $1 and id = $2"` + "\n",
					New:  `from resource.programmes where $1::uuid is not null and id = $2"` + "\n",
				},
			},
			"TestNobodyReachesThingsOfAnotherWorkspace",
			"is told of the victim's things",
		},
		{
			"status of any submission",
			[]harness.Fault{
				{
					File: "resourceapi/internal/engage/tokens.go",
					Old:  `err == nil && about == submission`,
					New:  `err == nil && about != uuid.Nil`,
				},
			},
			"TestPublicRoutesTellNothingOfOthers",
			"another submission's token reads the status",
		},
		{
			"workspace named twice",
			[]harness.Fault{
				{File: "resourceapi/internal/gate/tenant.go", Old: `len(values) == 1`, New: `len(values) > 0`},
			},
			"TestWorkspaceIsNamedOnceAndPlainly",
			"twice the same: ",
		},
		{
			"whatever address is claimed",
			[]harness.Fault{
				{File: "shared/web/address.go", Old: `if prefix.Contains(address) {`, New: `if prefix.IsValid() {`},
			},
			"TestNobodyChoosesTheirOwnAddress",
			"an address that the caller chose is believed",
		},
		{
			"connection goes on after chunks",
			[]harness.Fault{
				{
					File: "shared/web/serve.go",
					Old:  `if len(r.TransferEncoding) > 0 {`,
					New:  `if len(r.TransferEncoding) > 9 {`,
				},
			},
			"TestNothingIsSmuggledThroughTheGateway",
			"a hidden request was served",
		},
		{
			"errors of the stores told",
			[]harness.Fault{
				{
					File: "shared/apierr/apierr.go",
					Old:  `map[string]body{"error": {code, e.Message, e.Fields}}`,
					New:  `map[string]body{"error": {code, e.Error(), e.Fields}}`,
				},
			},
			"TestErrorsOfTheStoresAreForTheLogAlone",
			`tells the caller "canary"`,
		},
	}
}

// All protections are gone from one build: the attacks are on different ones, and each must be noticed by its own
// words.
func TestAttacksSucceedWithoutTheProtections(t *testing.T) {
	var faults []harness.Fault
	var attacks []string
	for _, b := range bites() {
		faults, attacks = append(faults, b.faults...), append(attacks, b.attack)
	}
	output, _ := harness.RunAgainst(t, harness.Broken(t, faults...), "^("+strings.Join(attacks, "|")+")$")
	for _, b := range bites() {
		t.Run(b.name, func(t *testing.T) {
			if !strings.Contains(output, "--- FAIL: "+b.attack) || !strings.Contains(output, b.complaint) {
				t.Errorf("%s does not complain that %q", b.attack, b.complaint)
			}
		})
	}
	if t.Failed() {
		t.Logf("the run against the build without protections:\n%.20000s", harness.Redact(output))
	}
}
