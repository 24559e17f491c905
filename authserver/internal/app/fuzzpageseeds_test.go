package app_test

import (
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/testing/fixture"
)

func pageSeeds() []routeSeed {
	const ask = "response_type=code&client_id=<connector>&redirect_uri=" + fixture.Callback +
		"&state=s&resource=https://api.example.org/v1" +
		"&code_challenge=E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM&code_challenge_method=S256"
	const sent = `{"id":"AAAA","rawId":"AAAA","type":"public-key","response":{"clientDataJSON":"e30",` +
		`"attestationObject":"oA","authenticatorData":"AA","signature":"AA","userHandle":"AA"}}`
	return []routeSeed{
		{"GET", "/oauth/authorize", "", ask, "", "", 200},
		{"GET", "/oauth/authorize", "", ask + "&scope=programmes:read:programmes%20offline_access", withSession,
			"", 200},
		{"GET", "/oauth/authorize", "", ask + "&scope=x", withSession, "", 303},
		{"GET", "/oauth/authorize", "", ask + "&state=t", withSession, "", 400},
		{"GET", "/oauth/authorize", "", strings.Replace(ask, "S256", "plain", 1), withSession, "", 303},
		{"GET", "/oauth/authorize", "", strings.Replace(ask, "127", "128", 1), "", "", 400},
		{"GET", "/oauth/authorize", "", "client_id=<linked>&redirect_uri=" + fixture.Callback + "&state=%00%ff",
			withSession, "", 200},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=<ticket>&decision=approve", 303},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=<ticket>&decision=deny", 303},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=<ticket>&decision=approve&access=read", 303},
		{"POST", "/oauth/authorize", "", "", withSession + asForm, "ticket=x&decision=approve", 403},
		{"POST", "/oauth/authorize", "", "", withSession + asForm + "Origin: https://elsewhere.example\n",
			"ticket=<ticket>&decision=approve", 403},
		{"POST", "/oauth/authorize/workspace", "", "", withSession + asForm,
			"ticket=<ticket>&decision=choose&workspace=<tenant>", 403},
		{"GET", "/login", "", "return=/settings/apps%3fx", "", "", 200},
		{"GET", "/login", "", "return=//elsewhere.example", withSession, "", 303},
		{"POST", "/login", "", "", asForm, "email=<email>&password=<password>&return=/settings/apps", 303},
		{"POST", "/login", "", "", asForm, "email=<email>&password=x", 400},
		{"POST", "/login", "", "", asForm, "email=a@b&email=c@d&password=x", 400},
		{"POST", "/login", "", "", asForm, "email=%00@%ff&password=x", 400},
		{"POST", "/logout", "", "", withSession + asForm, "return=/login", 303},
		{"POST", "/login/again", "", "", withSession + asForm, "password=<password>&return=/settings/developers", 303},
		{"GET", "/login/again", "", "return=/settings/developers", withSession, "", 200},
		{"POST", "/login/code", "", "", asForm, "ticket=x&code=123456", 400},
		{"POST", "/login/passkey/options", "", "", asForm, "", 200},
		{"POST", "/login/passkey", "", "", asForm, "credential=" + sent, 400},
		{"POST", "/login/again/passkey", "", "", withSession + asForm, "credential=" + sent, 303},
		{"POST", "/settings/passkeys", "", "", withSession + asForm, "name=Laptop&credential=" + sent, 400},
		{"GET", "/login/upstream/callback", "", "code=x&state=y&iss=https://127.0.0.1:1", withSession, "", 400},
		{"HEAD", "/login/upstream/callback", "", "state=y", "", "", 405},
		{"POST", "/login/upstream/confirm", "", "", withSession + asForm, "key=x", 303},
		{"GET", "/static/{id}", "site.css", "", "", "", 200},
		{"GET", "/{id}", "../etc/passwd", "", "", "", 404},
	}
}
