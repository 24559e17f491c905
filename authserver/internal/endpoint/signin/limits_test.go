package signin_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func attempt(site *browsertest.Server, from, email, password string) *browsertest.Page {
	browser := site.Browser()
	browser.Headers.Set("X-Forwarded-For", from)
	return browser.Post("/login", map[string][]string{"email": {email}, "password": {password}})
}

func TestSignIn_EleventhWrongPasswordPerAccountAndAddressIsRefused(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada, bob := site.Member(), site.Member()
	const thief, home, office = "192.0.2.1", "192.0.2.2", "2001:db8:1:2::1"
	for i := range 10 {
		if page := attempt(site, thief, ada.Email, "wrong "+strconv.Itoa(i)); page.Status != http.StatusBadRequest {
			t.Fatalf("attempt %d: %d", i+1, page.Status)
		}
	}
	for name, password := range map[string]string{"wrong": "wrong 11", "right": browsertest.Password} {
		page := attempt(site, thief, ada.Email, password)
		seconds, _ := strconv.Atoi(page.Header.Get("Retry-After"))
		if page.Status != http.StatusTooManyRequests || seconds < 1 || seconds > 15*60 {
			t.Errorf("%s password: %d, Retry-After %q", name, page.Status, page.Header.Get("Retry-After"))
		}
	}
	held := attempt(site, thief, ada.Email, "wrong 12")
	if policy := held.Header.Get("RateLimit-Policy"); policy != `"wrong-passwords-per-account";q=10;w=900` {
		t.Errorf("RateLimit-Policy: %s", policy)
	}
	want := `"wrong-passwords-per-account";r=0;t=` + held.Header.Get("Retry-After")
	if state := held.Header.Get("RateLimit"); state != want {
		t.Errorf("RateLimit: %s, want %s", state, want)
	}
	for name, page := range map[string]*browsertest.Page{
		"the owner elsewhere":           attempt(site, home, ada.Email, browsertest.Password),
		"the owner with IPv6":           attempt(site, office, ada.Email, browsertest.Password),
		"another account, same address": attempt(site, thief, bob.Email, browsertest.Password),
	} {
		if page.Status != http.StatusSeeOther {
			t.Errorf("%s: %d", name, page.Status)
		}
	}
}

func TestSignIn_HundredAndFirstWrongPasswordPerAddressIsRefused(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	const thief = "192.0.2.1"
	for i := range 100 {
		page := attempt(site, thief, fmt.Sprintf("guess-%d@example.org", i/5), "wrong")
		if page.Status != http.StatusBadRequest {
			t.Fatalf("attempt %d: %d", i+1, page.Status)
		}
	}
	if page := attempt(site, thief, ada.Email, browsertest.Password); page.Status != http.StatusTooManyRequests {
		t.Errorf("from the address: %d", page.Status)
	}
	if page := attempt(site, "192.0.2.2", ada.Email, browsertest.Password); page.Status != http.StatusSeeOther {
		t.Errorf("from elsewhere: %d", page.Status)
	}
}

func TestSignIn_WithoutRedisWrongPasswordsStillCount(t *testing.T) {
	t.Parallel()
	site := browsertest.Own(t)
	ada := site.Member()
	site.Redis.Stop()
	for i := range 10 {
		if page := attempt(site, "192.0.2.1", ada.Email, "wrong"); page.Status != http.StatusBadRequest {
			t.Fatalf("attempt %d: %d", i+1, page.Status)
		}
	}
	if page := attempt(site, "192.0.2.1", ada.Email, "wrong"); page.Status != http.StatusTooManyRequests {
		t.Errorf("attempt 11: %d", page.Status)
	}
	if page := attempt(site, "192.0.2.2", ada.Email, browsertest.Password); page.Status != http.StatusSeeOther {
		t.Errorf("the right password elsewhere: %d", page.Status)
	}
	site.Wait(15*time.Minute + time.Second)
	if page := attempt(site, "192.0.2.1", ada.Email, browsertest.Password); page.Status != http.StatusSeeOther {
		t.Errorf("after 15 minutes: %d", page.Status)
	}
}
