package app_test

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/app"
)

func TestU2_SignInIsAsFreshAsAuthTime(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) {
		p.of(c)
		c.Passkeys = true
	})
	ada := s.person()
	for name, c := range map[string]struct {
		authTime any
		fresh    bool
	}{
		"it does not say":      {nil, false},
		"just now":             {time.Now().Unix(), true},
		"nine minutes ago":     {time.Now().Add(-9 * time.Minute).Unix(), true},
		"an hour ago":          {time.Now().Add(-time.Hour).Unix(), false},
		"its clock is ahead":   {time.Now().Add(30 * time.Second).Unix(), true},
		"tomorrow":             {time.Now().Add(24 * time.Hour).Unix(), false},
		"before there was any": {-5, false},
	} {
		p.vouching(map[string]any{"email": ada.Email, "auth_time": c.authTime})
		b := s.browser()
		p.through(s, b)
		page := b.Get("/settings/passkeys")
		if page.Status != http.StatusOK || page.HasText("confirm your identity first") == c.fresh {
			t.Errorf("%s: %d %s", name, page.Status, page.Text())
		}
		if status := b.Post("/settings/passkeys/options", nil).Status; (status == http.StatusOK) != c.fresh {
			t.Errorf("%s: a passkey may be added: %d", name, status)
		}
	}
}

func TestSignIn_TooManyAttemptsFromAddressAreLimited(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	s := serve(t, func(c *app.Config) {
		p.of(c)
		c.Passkeys = true
	})
	stranger, other := s.browser(), s.browser()
	stranger.Headers.Set("X-Forwarded-For", "192.0.2.1")
	other.Headers.Set("X-Forwarded-For", "192.0.2.2")
	const atMost = 600
	for i := range atMost {
		if page := stranger.Post("/login/passkey/options", nil); page.Status != http.StatusOK {
			t.Fatalf("challenge %d: %d", i+1, page.Status)
		}
	}
	rows := s.count(`select count(*) from account.ceremonies`)
	page := stranger.Post("/login/passkey/options", nil)
	if wait, err := strconv.Atoi(page.Header.Get("Retry-After")); page.Status != http.StatusTooManyRequests ||
		err != nil ||
		wait < 1 ||
		wait > 900 {
		t.Errorf("one more challenge: %d %v", page.Status, page.Header)
	}
	if !strings.Contains(page.Body, "Too many attempts") {
		t.Errorf("it says %s", page.Body)
	}
	if page := stranger.Get("/login/upstream"); page.Status != http.StatusTooManyRequests ||
		page.Header.Get("Retry-After") == "" {
		t.Errorf("the provider: %d", page.Status)
	}
	if n := s.count(`select count(*) from account.ceremonies`); n != rows {
		t.Errorf("%d rows were stored by refused requests", n-rows)
	}
	if page := other.Post("/login/passkey/options", nil); page.Status != http.StatusOK {
		t.Errorf("from elsewhere: %d", page.Status)
	}
	stranger.SignIn(s.person()) // passwords are counted separately
}

func TestPasskey_StoresOnlyKnownTransports(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	b, d := s.signedIn(s.person()), newDevice(s)
	var answer map[string]any
	s.must(json.Unmarshal([]byte(d.made(options(t, b, "/settings/passkeys/options"))), &answer))
	answer["response"].(map[string]any)["transports"] = []string{
		"internal",
		"<b>",
		"hybrid",
		"internal",
		"",
		strings.Repeat("x", 9000),
		"cable",
		"smart-card",
	}
	text, err := json.Marshal(answer)
	s.must(err)
	if page := b.Post("/settings/passkeys", url.Values{
		"name":       {"Laptop"},
		"credential": {string(text)},
	}); page.Status != http.StatusSeeOther {
		t.Fatalf("%d %s", page.Status, page.Text())
	}
	var stored []string
	s.must(s.fixture.Owner.QueryRow(t.Context(), `select transports from account.passkeys`).Scan(&stored))
	if slices.Sort(stored); !slices.Equal(stored, []string{"hybrid", "internal", "smart-card"}) {
		t.Errorf("stored: %q", stored)
	}
}

func TestRoutes_FormURLLinksToItsPage(t *testing.T) {
	t.Parallel()
	s := serve(t, withPasskeys)
	b := s.signedIn(s.person())
	for path, back := range map[string]string{
		"/settings/developers/tokens":      "/settings/developers",
		"/settings/developers/apps/secret": "/settings/developers",
		"/settings/apps/disconnect":        "/settings/apps",
		"/settings/connectors/disconnect":  "/settings/connectors",
		"/settings/security/sign-out":      "/settings/security",
		"/settings/passkeys/remove":        "/settings/passkeys",
		"/logout":                          "/settings/user",
		"/login/passkey":                   "/settings/user",
	} {
		page := b.Get(path)
		if page.Status != http.StatusMethodNotAllowed || page.Header.Get("Allow") != "POST" ||
			!page.HasText("Nothing was submitted or changed") {
			t.Errorf("%s: %d %v %s", path, page.Status, page.Header, page.Text())
		}
		if !strings.Contains(page.Body, `href="`+back+`"`) {
			t.Errorf("%s does not lead to %s", path, back)
		}
	}
}
