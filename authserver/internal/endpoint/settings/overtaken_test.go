package settings_test

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

const overtaken = "The policy was changed after you opened this page. Your changes were not saved."

// A change on an outdated page must not allow again what another user has just forbidden.
func TestConnectorPolicy_OutdatedPageDoesNotOverwrite(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, eve := site.SignedIn(developer(site)), site.SignedIn(developer(site))
	old := eve.Get(connectors).Form(connectors + "/policy")
	ada.Post(connectors+"/policy", policyForm(ada.Get(connectors), "30", claudeAlone, perm.ProgrammesRead)).Follow()
	const unchanged = `select count(*) from account.connector_policies
		where platforms = '{claude}' and permissions = '{programmes:read:programmes}' and days = 30`
	old.Set("days", "7")
	page := eve.Post(connectors+"/policy", old)
	if page.Status != http.StatusConflict || !page.HasText(overtaken) || site.Count(unchanged) != 1 {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	shown := page.Form(connectors + "/policy")
	if !slices.Equal(shown["platforms"], claudeAlone) || len(shown["permissions"]) != 1 || shown.Get("days") != "30" {
		t.Errorf("the form does not show the current policy: %v", shown)
	}
	old.Set("days", "31") // is refused with the input kept, for the policy that the page showed
	again := eve.Post(connectors+"/policy", old).Form(connectors + "/policy")
	again.Set("days", "7")
	for name, form := range map[string]url.Values{
		"after a correction":    again,
		"confirmed":             with(old, "days", "7", "confirm", "yes"),
		"without what was seen": with(old, "days", "7", "seen", ""),
		"with rubbish":          with(old, "days", "7", "seen", "x"),
	} {
		if page := eve.Post(connectors+"/policy", form); page.Status != http.StatusConflict ||
			site.Count(unchanged) != 1 {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
	}
	shown.Set("days", "7")
	if page := eve.Post(connectors+"/policy", shown).Follow(); !page.HasText("was saved.") ||
		site.Count(`select count(*) from account.connector_policies where platforms = '{claude}' and days = 7`) != 1 {
		t.Errorf("over the current policy: %s", page.Text())
	}
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
	t.Parallel()
	site := browsertest.Own(t)
	ada := developer(site, readAndWrite...)
	site.Redeemed(site.Fixture.Connector(browsertest.Resource, readAndWrite...), ada.ID)
	browser, other := site.SignedIn(ada), site.SignedIn(developer(site))
	warning := browser.Post(
		connectors+"/policy",
		policyForm(browser.Get(connectors), "7", anyPlatform, readAndWrite...),
	)
	confirm := warning.Form(connectors + "/policy")
	if confirm.Get("confirm") != "yes" {
		t.Fatalf("no confirmation requested: %s", warning.Text())
	}
	saved := other.Post(
		connectors+"/policy",
		policyForm(other.Get(connectors), "30", []string{"claude", "chatgpt"}, perm.ForConnectors()...),
	)
	if saved.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", saved.Status, saved.Text())
	}
	page := browser.Post(connectors+"/policy", confirm)
	if page.Status != http.StatusConflict || !page.HasText(overtaken) || page.HasText("Apply the change") {
		t.Errorf("%d %s", page.Status, page.Text())
	}
	if n := site.Count(`select count(*) from account.grants
		where narrowed_at is not null or state <> 'active'`); n != 0 {
		t.Error("a connection was changed")
	}
}

func TestConnectorPolicy_ConcurrentSavesKeepOne(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	browser := site.SignedIn(developer(site))
	form := browser.Get(connectors).Form(connectors + "/policy")
	answers := make([]*browsertest.Page, 8)
	var all sync.WaitGroup
	for i := range answers {
		all.Go(func() { answers[i] = browser.Post(connectors+"/policy", with(form, "days", strconv.Itoa(i+1))) })
	}
	all.Wait()
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
	if site.Count(`select count(*) from account.connector_policies where days = $1`, saved) != 1 ||
		site.Count(`select count(*) from account.audit_events where action = '`+audit.ConnectorPolicyChanged+`'`) != 1 {
		t.Errorf("want exactly the policy of %d days saved", saved)
	}
}
