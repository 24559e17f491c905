package signin_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
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
	header := attempt(site, thief, ada.Email, "wrong 12").Header
	const policy = `"wrong-passwords-per-account";`
	site.Equal("RateLimit-Policy", header.Get("RateLimit-Policy"), policy+"q=10;w=900")
	site.Equal("Almoner-Busy", header.Get("Almoner-Busy"), "") // the page does not wait for a limit
	site.Equal("RateLimit", header.Get("RateLimit"), policy+"r=0;t="+header.Get("Retry-After"))
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

// keepBusy takes every slot for a password check and fills the queue with other callers. release frees one slot,
// strangers returns how many queued callers got a slot since, and refused receives a value for each caller that was
// removed from the queue.
func keepBusy(t *testing.T, site *browsertest.Server) (release func(), strangers func() int, refused chan struct{}) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	held, letGo, served := make(chan struct{}), make(chan struct{}), make(chan struct{}, 1000)
	hold := func() error {
		held <- struct{}{}
		<-letGo
		return nil
	}
	for i := range 2 {
		go func() {
			_ = site.Passwords.Slot(ctx, session.Caller{Email: "holder" + strconv.Itoa(i), Known: true}, hold)
		}()
		<-held
	}
	refused = make(chan struct{}, 1000)
	for i := range 257 {
		address := netip.AddrFrom4([4]byte{10, byte(i), byte(i >> 8), 1})
		stranger := session.Caller{Email: "stranger" + strconv.Itoa(i), Address: address}
		go func() {
			err := site.Passwords.Slot(ctx, stranger, func() error {
				served <- struct{}{}
				<-letGo
				return nil
			})
			if errors.Is(err, session.ErrBusy) {
				refused <- struct{}{}
			}
		}()
	}
	<-refused // the queue is full
	t.Cleanup(func() {
		stop()
		close(letGo)
	})
	return func() { letGo <- struct{}{} }, func() int { return len(served) }, refused
}

// A wrong password during a flood gets a 429 with Retry-After at once. It is not reported as an error of the server.
func TestSignIn_FloodGets429(t *testing.T) {
	site := own(t)
	ada := site.Member()
	for range 5 {
		site.Passwords.Wrong(session.Caller{Email: ada.Email, Address: netip.MustParseAddr("192.0.2.1")})
	}
	keepBusy(t, site)
	page := attempt(site, "192.0.2.77", "guess@example.org", "wrong") // another address of the same network
	page.Wants(http.StatusTooManyRequests, "people are signing in right now")
	site.Equal("Retry-After", page.Header.Get("Retry-After"), "1")
	site.Equal("Almoner-Busy", page.Header.Get("Almoner-Busy"), "1")
}

// A browser that has signed in to the account before gets the next slot, whatever the length of the queue and its
// address.
func TestSignIn_KnownBrowserGetsNextSlot(t *testing.T) {
	site := own(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	device := ""
	for _, cookie := range browser.Cookies() {
		if strings.HasSuffix(cookie.Name, "almoner-device") {
			device = cookie.Value
		}
	}
	if device == "" || strings.Contains(device, ada.Email) {
		t.Fatalf("device cookie: %q", device)
	}
	for range 50 { // the account and the network are under attack
		site.Passwords.Wrong(session.Caller{Email: ada.Email, Address: netip.MustParseAddr("127.0.0.1")})
	}
	release, strangers, refused := keepBusy(t, site)
	answer := make(chan *browsertest.Page)
	go func() {
		answer <- browser.Post("/login", map[string][]string{"email": {ada.Email}, "password": {browsertest.Password}})
	}()
	<-refused // the browser replaced a queued caller
	release()
	(<-answer).Wants(http.StatusSeeOther)
	if n := strangers(); n > 1 { // the slot that the browser frees goes to a queued caller
		t.Errorf("%d strangers were served first", n)
	}
}
