package ui

import "time"

// An Offer is which ways to sign in a deployment has besides the password.
type Offer struct {
	Passkeys bool
	Upstream string // what people call its OpenID Connect provider, or ""
}

// Offering returns pages that show these ways.
func (p *Pages) Offering(o Offer) *Pages {
	offering := *p
	offering.offer = o
	return &offering
}

// A PasskeyForm asks for a signature by a passkey. Its button is hidden until a script has found that the browser can.
type PasskeyForm struct {
	Action string // the challenge comes from Action + "/options"
	Return string
	Text   string
}

// Passkey is the form for signing in by a passkey.
func (l *Login) Passkey() PasskeyForm {
	return PasskeyForm{"/login/passkey", l.Return, "Sign in with a passkey"}
}

// Again is the page that asks somebody who is signed in to prove once more who they are.
type Again struct {
	Frame
	Return      string // local path to go on to
	HasPassword bool
	HasPasskey  bool
	Linked      bool // to an account at the upstream provider
	PasswordGap string
}

func (*Again) page() string { return "again" }

// Passkey is the form for proving it by a passkey.
func (a *Again) Passkey() PasskeyForm {
	return PasskeyForm{"/login/again/passkey", a.Return, "Use a passkey"}
}

// Passkeys is Settings → Security → Passkeys.
type Passkeys struct {
	Frame
	Key      string // proves that a form came from this page
	Fresh    bool   // who is there was proved lately enough to change something
	Passkeys []Passkey
	Name     string // as it was typed
	NameNote string // what is wrong with it
	MaxName  int
	Full     bool // there are as many as may be
}

func (*Passkeys) page() string { return "passkeys" }

// A Passkey is one in the list.
type Passkey struct {
	ID, Name string
	Synced   bool // it is kept beyond one device
	Copied   bool // it may have been copied, and is refused
	Created  time.Time
	LastUsed *time.Time
}
