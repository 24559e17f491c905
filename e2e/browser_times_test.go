package e2e

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/e2e/harness"
)

// Times in a real browser.

// timesOf returns the text and the title of each time on the page.
const timesOf = `[...document.querySelectorAll("time[data-local]")].map(e => e.textContent + "|" + e.title)`

func TestBrowser_TimesAreLocalAndRelative(t *testing.T) {
	p, ws := inWorkspace(t)
	user := ws.Member(t, harness.Everything()...)
	p.As(ws.Token).
		JSON(t, http.MethodPost, invitationsOf(ws.Workspace),
			invitationBody("sam@example.org", harness.ReadProgrammes)).
		Wants(t, http.StatusCreated)
	inUTC := regexp.MustCompile(`^\d+ \w+ \d{4}, \d\d:\d\d UTC$`)
	for _, scripts := range []bool{true, false} {
		browser := newBrowser(t, p, harness.Telephone)
		browser.TimeZone("Asia/Kolkata")
		if !scripts {
			browser.WithoutScript()
		}
		browser.Open(p.AppURL + "/login?return=/settings/security")
		browser.SignIn(user.Email, user.Password)
		browser.See("#sessions")
		times := harness.Evaluate[[]string](browser, timesOf)
		if len(times) == 0 {
			t.Fatal("there are no times on the page")
		}
		for _, shown := range times {
			text, title, _ := strings.Cut(shown, "|")
			if scripts && (!inUTC.MatchString(title) || text == title) || !scripts && !inUTC.MatchString(text) {
				t.Errorf("scripts %t: %q with the title %q", scripts, text, title)
			}
		}
		relative := func(shown string) bool {
			return strings.Contains(shown, " ago|") || strings.HasPrefix(shown, "just now|")
		}
		if scripts && !slices.ContainsFunc(times, relative) {
			t.Errorf("no time is relative: %v", times)
		}
		silent(t, browser)
		browser.Open(p.AppURL + "/settings/members/member?tenant=" + ws.Workspace.ID + "&id=" + user.ID)
		browser.See("#may")
		if local := harness.Evaluate[bool](
			browser,
			`[...document.querySelectorAll("time[data-local=day]")].every(e => e.textContent ===
				new Intl.DateTimeFormat("en-GB", { dateStyle: "long" }).format(new Date(e.dateTime)))`,
		); scripts && !local {
			t.Error("a day is not in the reader's time zone")
		}
		browser.Open(p.AppURL + "/settings/members?tenant=" + ws.Workspace.ID)
		browser.See("#invitations")
		if text := browser.Text(); scripts && !strings.Contains(text, "Expires in 7 days") {
			t.Errorf("the invitation of this minute does not expire in 7 days: %s", text)
		}
	}
}
