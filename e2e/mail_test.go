package e2e

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/mailbox"
)

// The mails of a deployment, received by a real SMTP server.

// mailing starts the stack that tests of mails share.
var mailing = sync.OnceValues(func() (*stack.Stack, error) { return harness.Lasting(harness.Options{Mailbox: true}) })

// enterWithMail returns the product of a deployment that sends mail, for a test with users of its own.
func enterWithMail(t *testing.T) (*harness.Product, *mailbox.Mailbox) {
	t.Helper()
	s, err := mailing()
	must(t, err)
	return harness.NewProduct(t, s, &met), s.Mailbox()
}

// mailTo waits for a mail with a subject to an address.
func mailTo(t *testing.T, box *mailbox.Mailbox, address, subject string) mailbox.Message {
	t.Helper()
	for deadline := time.After(await.Long); ; {
		changed := box.Changed()
		for _, m := range box.Messages(address) {
			if m.Subject == subject {
				return m
			}
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
// it, on two screens.
func TestBrowser_ForgottenPassword(t *testing.T) {
	t.Parallel()
	p, box := enterWithMail(t)
	for screen, chosen := range map[harness.Screen]string{
		harness.Laptop:    "tide lantern quarry",
		harness.Telephone: "violet harbour nine",
	} {
		user, browser := p.NewWorkspace(t).Owner, newBrowser(t, p, screen)
		look := func(page string) {
			t.Helper()
			for _, fault := range harness.Evaluate[[]string](browser, layoutFaults) {
				t.Errorf("%s at %d pixels: %s", page, screen.Width, fault)
			}
		}
		browser.Open(p.AppURL + "/login")
		browser.Click(`a[href="/login/forgotten"]`)
		browser.See(`form[action="/login/forgotten"]`)
		look("forgotten")
		browser.Fill("#email", user.Email)
		browser.Press(EnterKey)
		browser.See(`a[href="/login/forgotten"]`)
		look("requested")
		link := linkIn(t, mailTo(t, box, user.Email, "Set a new password"), p.AppURL+"/login/reset?token=")
		browser.Open(link)
		browser.Fill("#new-password", "password1234")
		browser.Press(EnterKey)
		browser.See("#new-password-note")
		look("refused")
		browser.Fill("#new-password", chosen)
		browser.Press(EnterKey)
		browser.See(`form[action="/login"]`)
		if text := browser.Text(); !strings.Contains(text, "Your new password is set") {
			t.Errorf("the sign-in page says %s", text)
		}
		browser.SignIn(user.Email, chosen)
		browser.See("#workspaces")
		changed := mailTo(t, box, user.Email, "Your password was changed")
		if strings.Contains(changed.Raw, chosen) {
			t.Error("the mail has the password")
		}
		browser.Open(link)
		if text := browser.Text(); !strings.Contains(text, "This link does not work") {
			t.Errorf("the used link shows %s", text)
		}
		for _, complaint := range browser.Complaints() {
			if !strings.Contains(complaint, "404") && !strings.Contains(complaint, "400") {
				t.Errorf("error on the console: %s", complaint)
			}
		}
	}
}

// TestMails_OfConnections checks that the user is told of a new connection once, and of its end by a replay.
func TestMails_OfConnections(t *testing.T) {
	t.Parallel()
	p, box := enterWithMail(t)
	ws := p.NewWorkspace(t)
	owner, connector := ws.Owner, ws.Connector(t, harness.ReadProgrammes)
	tokens := connector.Connect(t, p.Person(t, owner))
	approved := mailTo(t, box, owner.Email, "New connection")
	if !strings.Contains(approved.Text, ws.Workspace.Name) {
		t.Errorf("%s", approved.Text)
	}
	next := connector.Refresh(t, tokens.RefreshToken).Tokens(t)
	connector.Refresh(t, next.RefreshToken).Tokens(t)
	connector.Refresh(t, tokens.RefreshToken).Wants(t, http.StatusBadRequest)
	replayed := mailTo(t, box, owner.Email, "A connection was ended")
	if !strings.Contains(replayed.Text, "old access key") || strings.Contains(replayed.Raw, tokens.RefreshToken) {
		t.Errorf("%s", replayed.Text)
	}
	connector.Refresh(t, tokens.RefreshToken).Wants(t, http.StatusBadRequest)
	for _, subject := range []string{"New connection", "A connection was ended"} {
		n := 0
		for _, m := range box.Messages(owner.Email) {
			if m.Subject == subject {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d mails %q", n, subject)
		}
	}
}
