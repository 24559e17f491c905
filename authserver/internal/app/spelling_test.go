package app_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

const (
	composed   = "Spaziergang \u00fcber Br\u00fccken"
	decomposed = "Spaziergang u\u0308ber Bru\u0308cken"
	// formerHash is what earlier releases stored for decomposed.
	formerHash = "$argon2id$v=19$m=8,t=1,p=1$MNA+T9fAA0uMSLGcBUwyMA$hGLHOdaHsc2LDQ4wb+n7zVt/JA5d6pOUjC5Dg20OPwM"
)

// Addresses and passwords are one and the same in any spelling (contract, section 5).
func TestSignIn_AcceptsAddressAndPasswordInAnySpelling(t *testing.T) {
	s := shared(t)
	ofTest := "-" + uuid.NewString()[:8] + "@"
	hash, err := session.HashPassword(composed, session.LowestCost())
	s.must(err)
	for _, stored := range []string{"ada@münchen.example", "jos\u00e9@xn--zrich-kva.example"} {
		id := s.fixture.User(strings.Replace(stored, "@", ofTest, 1))
		s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, id, hash.Reveal())
	}
	for _, c := range []struct {
		email, password string
		status          int
	}{
		{"ada@münchen.example", composed, 303},
		{"ada@xn--mnchen-3ya.example", decomposed, 303},
		{"Ada@MU\u0308NCHEN.example", composed, 303},
		{"\u202aada@münchen.example\u202c\u00a0", decomposed, 303},
		{"jose\u0301@zürich.example", decomposed, 303},
		{"JOS\u00c9@xn--zrich-kva.example", composed, 303},
		{"ada@munchen.example", composed, 400},
		{"ada@münchen.example", "Spaziergang uber Brucken", 400},
	} {
		status := s.tries(strings.Replace(c.email, "@", ofTest, 1), c.password)
		equal(t, fmt.Sprintf("%+q", c.email), status, c.status)
	}
}

// A hash that an earlier release stored for the text as it was typed is accepted once, and then replaced by the hash of
// the normalized password.
func TestSignIn_RenewsHashOfEarlierRelease(t *testing.T) {
	s := shared(t)
	ada := s.person()
	s.fixture.Exec(`update account.users set password_hash = $2 where id = $1`, ada.ID, formerHash)
	equal(t, "the composed password", s.tries(ada.Email, composed), 400)
	equal(t, "the decomposed password", s.tries(ada.Email, decomposed), 303)
	equal(t, "the composed password then", s.tries(ada.Email, composed), 303)
	equal(t, "the decomposed password then", s.tries(ada.Email, decomposed), 303)
	s.rows(0, "users", "password_hash = $1", formerHash)
}
