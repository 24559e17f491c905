package attack

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"golang.org/x/oauth2"

	"github.com/almonerhq/almoner/e2e/harness"
)

// PKCE (RFC 7636; RFC 9700, section 4.8): it cannot be omitted, weakened or added later.

// copied returns a copy of the form with one field changed. A value of "-" removes the field.
func copied(form url.Values, name, value string) url.Values {
	out := maps.Clone(form)
	out.Set(name, value)
	if value == "-" {
		out.Del(name)
	}
	return out
}

func TestPKCE_VerifierIsRequiredAfterFailedAttempts(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector := ws.Connector(t, harness.ReadProgrammes)
	stolen := connector.Begin() // the attacker's attempt and verifier
	for _, tries := range [][]string{
		{"wrong" + strings.Repeat("x", 43), "-"},
		{"-", ""},
		{"", "-", "-"},
		{stolen.Verifier, "-"},
		{"challenge", "-"},
		{"verifier, cut", "verifier, longer", "verifier, small"},
		{strings.Repeat("é", 43), "verifier, spaced", "plain"},
	} {
		attempt := connector.Begin()
		code := attempt.Code(t, owner)
		form := attempt.CodeForm(code)
		for _, wrong := range tries {
			switch wrong {
			case "challenge": // the S256 challenge as a plain verifier
				wrong = attempt.Query.Get("code_challenge")
			case "verifier, cut":
				wrong = attempt.Verifier[:len(attempt.Verifier)-1]
			case "verifier, longer":
				wrong = attempt.Verifier + "A"
			case "verifier, small":
				wrong = strings.ToLower(attempt.Verifier)
			case "verifier, spaced":
				wrong = attempt.Verifier + " "
			}
			gets(t, connector.Post(t, copied(form, "code_verifier", wrong)),
				"a code was exchanged without its verifier", http.StatusBadRequest)
		}
		twice := maps.Clone(form)
		twice["code_verifier"] = []string{attempt.Verifier, attempt.Verifier}
		connector.Post(t, twice).WantsFlat(t, http.StatusBadRequest, "invalid_request")
		connector.Post(t, form).Tokens(t) // the right verifier still works
	}
}

func TestPKCE_CannotBeOmittedOrAddedLater(t *testing.T) {
	p := newProduct(t)
	ws := p.NewWorkspace(t)
	owner := p.Person(t, ws.Owner).SignedIn(t)
	connector, app := ws.Connector(t, harness.ReadProgrammes), ws.Confidential(t, "", harness.ReadProgrammes)
	for name, change := range map[string]map[string]string{
		"no PKCE":         {"code_challenge": "-", "code_challenge_method": "-"},
		"challenge alone": {"code_challenge_method": "-"},
		"method alone":    {"code_challenge": "-"},
		"plain":           {"code_challenge_method": "plain"},
		"empty":           {"code_challenge": ""},
		"none":            {"code_challenge_method": "none"},
		"small":           {"code_challenge_method": "s256"},
	} {
		query := connector.Begin().Query
		for field, value := range change {
			query = copied(query, field, value)
		}
		callback := owner.Open(t, p.AuthorizeURL(query)).Callback(t)
		if callback.Code() != "" || callback.Values.Get("error") != "invalid_request" {
			t.Errorf("%s: %v %s", name, callback.Names(), callback.Values.Get("error"))
		}
	}
	// The attacker removes the challenge from a confidential application's request, and the application sends its
	// verifier.
	verifier := connector.Begin().Verifier
	body := app.Body(app.Code(t, owner))
	body["code_verifier"] = verifier
	app.Exchange(t, body).Wants(t, http.StatusBadRequest)
	// The application sent a challenge, and the attacker exchanges the code without a verifier.
	query := copied(copied(app.Request(), "code_challenge", oauth2.S256ChallengeFromVerifier(verifier)),
		"code_challenge_method", "S256")
	body = app.Body(owner.Consent(t, query).Approve(t))
	for _, wrong := range []any{nil, "", strings.Repeat("x", 43), oauth2.S256ChallengeFromVerifier(verifier)} {
		body["code_verifier"] = wrong
		if wrong == nil {
			delete(body, "code_verifier")
		}
		gets(t, app.Exchange(t, body), "a code was exchanged without regard to its challenge", http.StatusBadRequest)
	}
	body["code_verifier"] = verifier
	app.Exchange(t, body).Tokens(t)
}
