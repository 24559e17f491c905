package settings_test

import (
	"net/http"
	"net/url"
	"strconv"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const overtaken = "The policy was changed after you opened this page. Your changes were not saved."

// A change on an outdated page must not allow again what another user has just forbidden.
func TestConnectorPolicy_OutdatedPageDoesNotOverwrite(t *testing.T) {
	site := shared(t)
	ada, eve := site.SignedIn(developer(site)), site.SignedIn(developer(site))
	old := eve.Get(connectors).Form(connectors + "/policy")
	ada.Post(connectors+"/policy", policyForm(ada.Get(connectors), "30", claudeAlone, perm.ProgrammesRead)).Follow()
	const unchanged = `platforms = '{claude}' and permissions = '{programmes:read:programmes}' and days = 30`
	old.Set("days", "7")
	page := eve.Post(connectors+"/policy", old)
	page.Wants(http.StatusConflict, overtaken)
	site.Rows(1, "connector_policies", unchanged)
	page.Keeps(connectors+"/policy", "platforms", "claude", "permissions", string(perm.ProgrammesRead), "days", "30")
	shown := page.Form(connectors + "/policy")
	old.Set("days", "31") // is refused with the input kept, for the policy that the page showed
	again := eve.Post(connectors+"/policy", old).Form(connectors + "/policy")
	again.Set("days", "7")
	for name, form := range map[string]url.Values{
		"after a correction":    again,
		"confirmed":             with(old, "days", "7", "confirm", "yes"),
		"without what was seen": with(old, "days", "7", "seen", ""),
		"with rubbish":          with(old, "days", "7", "seen", "x"),
	} {
		eve.Post(connectors+"/policy", form).As(name).Wants(http.StatusConflict)
		site.Rows(1, "connector_policies", unchanged)
	}
	shown.Set("days", "7")
	eve.Post(connectors+"/policy", shown).Follow().Says("was saved.")
	site.Rows(1, "connector_policies", `platforms = '{claude}' and days = 7`)
}

func with(form url.Values, pairs ...string) url.Values {
	out := url.Values{}
	for name, values := range form {
		out[name] = values
	}
	for i := 0; i < len(pairs); i += 2 {
		out.Set(pairs[i], pairs[i+1])
	}
	return out
}

// A confirmation applies to the policy that the warning showed. If it was changed in between, the user must look at it
// first.
func TestConnectorPolicy_OutdatedConfirmationIsRefused(t *testing.T) {
	site := shared(t)
	ada := developer(site, readAndWrite...)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, readAndWrite...), ada.ID)
	browser, other := site.SignedIn(ada), site.SignedIn(developer(site))
	warning := browser.Post(connectors+"/policy",
		policyForm(browser.Get(connectors), "7", anyPlatform, readAndWrite...))
	confirm := warning.Form(connectors + "/policy")
	warning.Keeps(connectors+"/policy", "confirm", "yes")
	other.Post(connectors+"/policy", policyForm(other.Get(connectors), "30", []string{"claude", "chatgpt"},
		perm.ForConnectors()...)).Wants(http.StatusSeeOther)
	browser.Post(connectors+"/policy", confirm).Wants(http.StatusConflict, overtaken).Lacks("Apply the change")
	site.Rows(0, "grants", `narrowed_at is not null or state <> 'active'`)
}

func TestConnectorPolicy_ConcurrentSavesKeepOne(t *testing.T) {
	site := shared(t)
	browser := site.SignedIn(developer(site))
	form := browser.Get(connectors).Form(connectors + "/policy")
	answers := atOnce(8, func(i int) *browsertest.Page {
		return browser.Post(connectors+"/policy", with(form, "days", strconv.Itoa(i+1)))
	})
	saved := 0
	for i, page := range answers {
		switch page.Status {
		case http.StatusSeeOther:
			saved = i + 1
		case http.StatusConflict:
		default:
			t.Errorf("%d %s", page.Status, page.Text())
		}
	}
	site.Rows(1, "connector_policies", `days = $1`, saved)
	site.Rows(1, "audit_events", `action = '`+audit.ConnectorPolicyChanged+`'`)
}
