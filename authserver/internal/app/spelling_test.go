package app_test

import (
	"net/http"
	"testing"

	"github.com/almonerhq/almoner/authserver/internal/app"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/testing/browsertest"
)

const (
	composed   = "Spaziergang \u00fcber Br\u00fccken"
	decomposed = "Spaziergang u\u0308ber Bru\u0308cken"
	// formerHash is what earlier releases stored for decomposed.
	formerHash = "$argon2id$v=19$m=8,t=1,p=1$MNA+T9fAA0uMSLGcBUwyMA$hGLHOdaHsc2LDQ4wb+n7zVt/JA5d6pOUjC5Dg20OPwM"
)

// signs signs in with these fields and returns the status.
func (s *site) signs(email, password string) int {
	s.t.Helper()
	fields := browsertest.Fields{"email": email, "password": password}
	return s.browser().Get("/login").Send("/login", fields).Status
}

// Addresses and passwords are one and the same in any spelling (contract, section 5).
func TestSignIn_AcceptsAddressAndPasswordInAnySpelling(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	hash, err := session.HashPassword(composed, session.LowestCost())
	s.must(err)
	for _, stored := range []string{"ada@münchen.example", "jos\u00e9@xn--zrich-kva.example"} {
		id := s.fixture.User(stored)
		s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, hash.Reveal())
	}
	for _, typed := range [][2]string{
		{"ada@münchen.example", composed},
		{"ada@xn--mnchen-3ya.example", decomposed},
		{"Ada@MU\u0308NCHEN.example", composed},
		{"\u202aada@münchen.example\u202c\u00a0", decomposed},
		{"jose\u0301@zürich.example", decomposed},
		{"JOS\u00c9@xn--zrich-kva.example", composed},
	} {
		if status := s.signs(typed[0], typed[1]); status != http.StatusSeeOther {
			t.Errorf("%+q: %d", typed[0], status)
		}
	}
	for _, wrong := range [][2]string{
		{"ada@munchen.example", composed},
		{"ada@münchen.example", "Spaziergang uber Brucken"},
	} {
		if status := s.signs(wrong[0], wrong[1]); status != http.StatusBadRequest {
			t.Errorf("%+q: %d", wrong[0], status)
		}
	}
}

// A hash that an earlier release stored for the text as it was typed is accepted once, and then replaced by the hash of
// the normalized password.
func TestSignIn_RenewsHashOfEarlierRelease(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	id := s.fixture.User("ada@example.org")
	s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, formerHash)
	for _, step := range []struct {
		password string
		status   int
	}{
		{composed, http.StatusBadRequest},
		{decomposed, http.StatusSeeOther},
		{composed, http.StatusSeeOther},
		{decomposed, http.StatusSeeOther},
	} {
		if status := s.signs("ada@example.org", step.password); status != step.status {
			t.Errorf("%+q: %d, want %d", step.password, status, step.status)
		}
	}
	if n := s.count(`select count(*) from account.users where password_hash = '` + formerHash + `'`); n != 0 {
		t.Error("the former hash is still stored")
	}
}

// Chromium sends the domain of an address in Punycode.
func TestChromium_SignsInWithInternationalAddress(t *testing.T) {
	t.Parallel()
	s := serve(t, func(*app.Config) {})
	hash, err := session.HashPassword(browsertest.Password, session.LowestCost())
	s.must(err)
	id := s.fixture.User("ada@münchen.example")
	s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, hash.Reveal())
	c := openChromium(t, s)
	c.signIn(browsertest.Person{ID: id, Email: "ada@münchen.example"})
	c.open("/settings/user")
	c.sees("body", "ada@münchen.example")
	c.noFaults()
}
