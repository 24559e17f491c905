package login_test

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

// keepBusy holds every turn to check a password, with so many strangers waiting that one more is one too many. release
// lets go of one turn, strangers says how many of those who waited had theirs since, and refused tells of each that was
// sent away for another.
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
			_ = site.Passwords.Slot(ctx, session.Caller{Email: "holder" + strconv.Itoa(i)}, hold)
		}()
		<-held
	}
	refused = make(chan struct{}, 1000)
	for i := range 129 {
		go func() {
			err := site.Passwords.Slot(ctx, session.Caller{Email: "stranger" + strconv.Itoa(i)}, func() error {
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

// A flood's wrong password is told to wait, at once and with 429. It is no fault of the service's.
func TestSignIn_FloodIsToldToWait(t *testing.T) {
	site := browsertest.Start(t)
	ada := site.Member()
	for range 5 {
		site.Passwords.Wrong(session.Caller{Email: ada.Email, Address: netip.MustParseAddr("192.0.2.1")})
	}
	keepBusy(t, site)
	page := attempt(site, "192.0.2.77", "guess@example.org", "wrong") // another address of the same network
	if page.Status != http.StatusTooManyRequests || page.Header.Get("Retry-After") != "3" ||
		!page.WantsText("Many people are signing in") {
		t.Errorf("%d, Retry-After %q", page.Status, page.Header.Get("Retry-After"))
	}
}

// A browser that has signed in to the account before has the next turn, however many wait and wherever it is.
func TestSignIn_KnownBrowserHasTheNextTurn(t *testing.T) {
	site := browsertest.Start(t)
	ada := site.Member()
	browser := site.SignedIn(ada)
	device := ""
	for _, cookie := range browser.Cookies() {
		if strings.HasSuffix(cookie.Name, "almoner-device") {
			device = cookie.Value
		}
	}
	if device == "" || strings.Contains(device, ada.Email) {
		t.Fatalf("the browser was given %q to be known by", device)
	}
	for range 50 { // the account and the network are under attack
		site.Passwords.Wrong(session.Caller{Email: ada.Email, Address: netip.MustParseAddr("127.0.0.1")})
	}
	release, strangers, refused := keepBusy(t, site)
	answer := make(chan *browsertest.Page)
	go func() {
		answer <- browser.Post("/login", map[string][]string{"email": {ada.Email}, "password": {browsertest.Password}})
	}()
	<-refused // the browser waits in the place of a stranger
	release()
	if page := <-answer; page.Status != http.StatusSeeOther {
		t.Errorf("%d", page.Status)
	}
	if n := strangers(); n > 1 { // the turn that the browser has left goes to one of them
		t.Errorf("%d strangers were served first", n)
	}
}
