package ui

import (
	"net/http"
	"time"
)

// An Offer is the sign-in methods of a deployment besides the password.
type Offer struct {
	Passkeys bool
	Upstream string // display name of the OpenID Connect provider, or ""
}

// Offering returns pages that show these methods. identify is called before a sign-in page is written: it sets a cookie
// by which the server recognises the browser in the requests that the page starts, which can be concurrent.
func (p *Pages) Offering(o Offer, identify func(http.ResponseWriter, *http.Request)) *Pages {
	offering := *p
	offering.offer, offering.identify = o, identify
	return &offering
}

// A PasskeyForm requests a signature by a passkey. Its button is hidden until a script has found that the browser
// supports it.
type PasskeyForm struct {
	Action string // the challenge comes from Action + "/options"
	Return string
	Text   string
}

// Passkey returns the form for signing in with a passkey.
func (l *Login) Passkey() PasskeyForm {
	return PasskeyForm{"/login/passkey", l.Return, "Sign in with a passkey"}
}

// Reauth is the page on which a signed-in user authenticates again.
type Reauth struct {
	Frame
	Return       string // local path that follows
	HasPassword  bool
	HasPasskey   bool
	Linked       bool // the user's account at the OpenID Connect provider is linked
	PasswordGap  string
	SecondFactor bool   // the password alone is not enough, because the user has a passkey
	NeedsCode    bool   // the password needs a code of the authenticator app
	CodeNote     string // the error of this field
}

// Template implements View.
func (*Reauth) Template() string { return "reauth" }

// LeadsTo implements View.
func (a *Reauth) LeadsTo() string { return a.Return }

// Passkey returns the form for reauthentication with a passkey.
func (a *Reauth) Passkey() PasskeyForm {
	return PasskeyForm{"/login/again/passkey", a.Return, "Use a passkey"}
}

// Passkeys is Settings → Security → Passkeys.
type Passkeys struct {
	Frame
	Key      string // proves that a form came from this page
	Fresh    bool   // the last authentication is recent enough for a change
	Passkeys []Passkey
	Name     string // as typed
	NameNote string // the error of Name
	MaxName  int
	Full     bool   // the user has as many passkeys as allowed
	Return   string // local path that follows when a passkey was added, or ""
	Again    string // local path of the reauthentication that leads back here
}

// Template implements View.
func (*Passkeys) Template() string { return "passkeys" }

// LeadsTo implements View.
func (p *Passkeys) LeadsTo() string { return p.Return }

// A Passkey is one passkey in the list.
type Passkey struct {
	ID, Name string
	Synced   bool // it is stored on more than one device
	Copied   bool // it may have been copied and is refused
	Created  time.Time
	LastUsed *time.Time
}
