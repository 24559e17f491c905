package signin_test

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/testing/apitest"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

func attempt(site *browsertest.Server, from, email, password string) *browsertest.Page {
	browser := site.Browser()
	browser.Headers.Set("X-Forwarded-For", from)
	return browser.Post("/login", map[string][]string{"email": {email}, "password": {password}})
}

func TestSignIn_EleventhWrongPasswordPerAccountAndAddressIsRefused(t *testing.T) {
	site := shared(t)
	ada, bob := site.Member(), site.Member()
	thief, home, office := apitest.NewAddress(), apitest.NewAddress(), "2001:db8:1:2::1"
	for i := range 10 {
		attempt(site, thief, ada.Email, "wrong "+strconv.Itoa(i)).As(i).Wants(http.StatusBadRequest)
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
		page.As(name).Wants(http.StatusSeeOther)
	}
}

func TestSignIn_HundredAndFirstWrongPasswordPerAddressIsRefused(t *testing.T) {
	site := shared(t)
	ada := site.Member()
	thief := apitest.NewAddress()
	for i := range 100 {
		attempt(site, thief, fmt.Sprintf("guess-%d@example.org", i/5), "wrong").As(i).Wants(http.StatusBadRequest)
	}
	attempt(site, thief, ada.Email, browsertest.Password).Wants(http.StatusTooManyRequests)
	attempt(site, apitest.NewAddress(), ada.Email, browsertest.Password).Wants(http.StatusSeeOther)
}

func TestSignIn_WithoutRedisWrongPasswordsStillCount(t *testing.T) {
	site := own(t)
	ada := site.Member()
	site.Redis.Stop()
	for i := range 10 {
		attempt(site, "192.0.2.1", ada.Email, "wrong").As(i).Wants(http.StatusBadRequest)
	}
	attempt(site, "192.0.2.1", ada.Email, "wrong").Wants(http.StatusTooManyRequests)
	attempt(site, apitest.NewAddress(), ada.Email, browsertest.Password).Wants(http.StatusSeeOther)
	site.Wait(15*time.Minute + time.Second)
	attempt(site, "192.0.2.1", ada.Email, browsertest.Password).Wants(http.StatusSeeOther)
}
