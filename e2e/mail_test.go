package e2e

import (
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

// The mails of a deployment, received by a real SMTP server.

// A connected deployment sends mail, accepts the clients of one website as those of Claude, and has a brand.
type connected struct {
	*stack.Stack
	site *harness.MetadataHost
}

// deployment starts the connected deployment that tests share.
var deployment = testkit.Once(func(t testing.TB) connected {
	site := harness.NewMetadataHost(t)
	settings := site.Settings("claude")
	maps.Copy(settings, brandSettings(t))
	return connected{lasting(t, harness.Options{Mailbox: true, Settings: settings}), site}
})

// withMail returns the product of a deployment that sends mail, for a test that runs beside others in a workspace of
// its own.
func withMail(t *testing.T) (*harness.Product, harness.TestWorkspace, *mailbox.Mailbox) {
	t.Helper()
	t.Parallel()
	s := deployment(t)
	p := harness.NewProduct(t, s.Stack, &met)
	return p, p.NewWorkspace(t), s.Mailbox()
}

// enterWithDocuments returns the product of a deployment that accepts the clients of a website, and a folder of it, for
// a test that runs beside others in workspaces of its own.
func enterWithDocuments(t *testing.T) (*harness.Product, *harness.MetadataHost) {
	t.Helper()
	t.Parallel()
	s := deployment(t)
	return harness.NewProduct(t, s.Stack, &met), &harness.MetadataHost{MetadataHost: s.site.For(t)}
}

// mailsTo returns the mails with a subject to an address.
func mailsTo(box *mailbox.Mailbox, address, subject string) []mailbox.Message {
	return slices.DeleteFunc(box.Messages(address), func(m mailbox.Message) bool { return m.Subject != subject })
}

// mailTo waits for a mail with a subject to an address.
func mailTo(t *testing.T, box *mailbox.Mailbox, address, subject string) mailbox.Message {
	t.Helper()
	for deadline := time.After(await.Long); ; {
		changed := box.Changed()
		if received := mailsTo(box, address, subject); len(received) > 0 {
			return received[0]
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("no mail %q to %s among %d", subject, address, len(box.Messages("")))
		}
	}
}

func linkIn(t *testing.T, m mailbox.Message, beginning string) string {
	t.Helper()
	for line := range strings.Lines(m.Text) {
		if link := strings.TrimSpace(line); strings.HasPrefix(link, beginning) {
			return link
		}
	}
	t.Fatalf("no link to %s in %q", beginning, m.Text)
	return ""
}

// TestBrowser_ForgottenPassword goes from the sign-in page to the mail, its link, a new password and the sign-in with
// it.
func TestBrowser_ForgottenPassword(t *testing.T) {
	p, ws, box := withMail(t)
	const chosen = "tide lantern quarry"
	user, browser := ws.Owner, newBrowser(t, p, harness.Telephone)
	browser.Open(p.AppURL + "/login")
	browser.Fill("#email", user.Email)
	browser.ClickAndSee(`a[href="/login/forgotten"]`, `form[action="/login/forgotten"]`)
	browser.Press(EnterKey) // the address was carried over
	browser.See("[data-address]")
	wantsText(t, "the page afterwards", browser, "If there is an account with "+user.Email)
	link := linkIn(t, mailTo(t, box, user.Email, "Set a new password"), p.AppURL+"/login/reset?token=")
	browser.Open(link)
	browser.Fill("#new-password", "password1234")
	browser.Press(EnterKey)
	browser.See("#new-password-note")
	looks(t, "refused", browser)
	browser.Fill("#new-password", chosen)
	browser.Press(EnterKey)
	browser.See("#workspaces")
	wantsText(t, "the settings", browser, "Your new password is set")
	if zones := p.Database.Count(t, `select count(*) from account.sign_ins s join account.users u on u.id = s.user_id
		where u.email = $1 and s.time_zone <> ''`, user.Email); zones != 1 {
		t.Errorf("%d sign-ins with the time zone of the browser", zones)
	}
	if changed := mailTo(t, box, user.Email, "Your password was changed"); strings.Contains(changed.Raw, chosen) {
		t.Error("the mail has the password")
	}
	browser.Open(link)
	wantsText(t, "the used link", browser, "This link does not work")
	sound(t, "forgotten", browser, http.StatusBadRequest, http.StatusNotFound)
}

// TestMails_OfConnections checks that the user is told of a new connection once, and of its end by a replay.
func TestMails_OfConnections(t *testing.T) {
	p, ws, box := withMail(t)
	owner, connector := ws.Owner, ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, owner))
	approved := mailTo(t, box, owner.Email, "New connected app")
	if !strings.Contains(approved.Text, ws.Workspace.Name) {
		t.Errorf("%s", approved.Text)
	}
	next := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	connector.Refresh(t, next.RefreshToken).Tokens(t)
	connector.Refresh(t, tokens.RefreshToken).Wants(t, http.StatusBadRequest)
	replayed := mailTo(t, box, owner.Email, "An app was disconnected")
	if !strings.Contains(replayed.Text, "old access key") || strings.Contains(replayed.Raw, tokens.RefreshToken) {
		t.Errorf("%s", replayed.Text)
	}
	connector.Refresh(t, tokens.RefreshToken).Wants(t, http.StatusBadRequest)
	for _, subject := range []string{"New connected app", "An app was disconnected"} {
		if n := len(mailsTo(box, owner.Email, subject)); n != 1 {
			t.Errorf("%d mails %q", n, subject)
		}
	}
}

// A new token is used from two networks of this machine at the resource API, and from a third one at the account API.
// The services note them at about the same time, so that each can be the first one, about which there is no mail.
func TestMail_ReportsNewNetworkOfToken(t *testing.T) {
	p, ws, box := withMail(t)
	token := p.Database.Token(t, ws.Workspace, ws.Owner, harness.Everything()...)
	for _, c := range []struct{ address, path string }{
		{"127.0.7.1", programmes},
		{"127.0.8.1", programmes},
		{"127.0.8.200", programmes},
		{"127.0.9.1", "/v1/account/tenants/" + ws.Workspace.ID + "/tokens"},
	} {
		from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(c.address)}}
		transport := &http.Transport{DialContext: from.DialContext}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.BaseURL+c.path, nil)
		mustRedacted(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("X-Tenant-Id", ws.Workspace.ID)
		response, err := transport.RoundTrip(request)
		mustRedacted(t, err)
		_ = response.Body.Close()
		transport.CloseIdleConnections()
		if response.StatusCode != http.StatusOK {
			t.Fatalf("%s from %s: %s", c.path, c.address, response.Status)
		}
	}
	const subject = "A personal access token was used from a new network"
	await.True(t, "a mail about each service", func() bool { return len(mailsTo(box, ws.Owner.Email, subject)) == 2 })
	var told string
	for _, m := range mailsTo(box, ws.Owner.Email, subject) {
		told += m.Text
	}
	about := 0
	for _, network := range []string{"127.0.7.0/24", "127.0.8.0/24", "127.0.9.0/24"} {
		got := strings.Count(told, "Network: "+network+"\n")
		if about += got; got > 1 {
			t.Errorf("%d mails about %s: %s", got, network, told)
		}
	}
	if about != 2 {
		t.Errorf("%d mails about the networks, want 2: %s", about, told)
	}
}
