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

// Login is the page that asks for e-mail and password.
type Login struct {
	Frame
	Application string // the application that sent the user here, or ""
	Return      string // local path that follows
	Email       string // as typed
	EmailNote   string // the error of this field
	PasswordGap string // the error of this field
	Unsent      bool   // the notice says that a form was refused because the session had ended
}

// Template implements View.
func (*Login) Template() string { return "login" }

// LeadsTo implements View.
func (l *Login) LeadsTo() string { return l.Return }

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
func (r *Reauth) LeadsTo() string { return r.Return }

// Passkey returns the form for reauthentication with a passkey.
func (r *Reauth) Passkey() PasskeyForm {
	return PasskeyForm{"/login/again/passkey", r.Return, "Use a passkey"}
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

// SignInCode is the page on which a user with an authenticator app enters a code after the password.
type SignInCode struct {
	Frame
	Ticket   string // the checked password, sealed
	Return   string // local path that follows
	Email    string // of the account
	CodeNote string // the error of this field
}

// Template implements View.
func (*SignInCode) Template() string { return "code" }

// LeadsTo implements View.
func (s *SignInCode) LeadsTo() string { return s.Return }

// Forgotten is the page on which a person requests a link to set a new password.
type Forgotten struct {
	Frame
	Mails     bool // the deployment sends mail
	Requested bool // the request was accepted
	Email     string
	EmailNote string // the error of this field
}

// Template implements View.
func (*Forgotten) Template() string { return "forgotten" }

// NewPassword is the page on which a person sets a password with a link.
type NewPassword struct {
	Frame
	Email        string // of the account
	Token        string // the secret of the link
	Others       bool   // the link can remove passkeys or linked accounts
	Stay         bool   // the link removes no passkey, because a workspace requires a second factor
	RemoveOthers bool   // the choice about them
	TakesOver    bool   // the address was never confirmed: all that the account has ends
	Credentials  []EndingCredential
	More         int    // tokens and connections that end and are not listed
	PasswordNote string // the error of this field
}

// Template implements View.
func (*NewPassword) Template() string { return "newpassword" }

// An EndingCredential is a personal access token or a connection that ends with the new password.
type EndingCredential struct {
	ID        string
	Kind      string // in words
	Name      string
	Workspace string
	LastUsed  *time.Time
	Keep      bool // the user does not want to end it
}

// Provider is Settings → Security → Sign-in with the deployment's OpenID Connect provider.
type Provider struct {
	Frame
	Key    string // proves that a form came from this page
	Name   string // display name of the provider
	Linked bool
	Since  time.Time // when the account was linked
	Fresh  bool      // the last authentication is recent enough for a change
}

// Template implements View.
func (*Provider) Template() string { return "provider" }

// EmailChange is the page of a link that confirms or stops a change of an e-mail address.
type EmailChange struct {
	Frame
	Token     string // the secret of the link
	Email     string // the new address
	ToNew     bool   // the link was sent to the new address
	Confirmed bool   // with this link
}

// Template implements View.
func (*EmailChange) Template() string { return "emailchange" }

// Takeover is the page that says what a sign-in at the identity provider ends, because the address of the account was
// never confirmed.
type Takeover struct {
	Frame
	Key    string
	Email  string
	Return string // local path that follows
}

// Template implements View.
func (*Takeover) Template() string { return "takeover" }

// LeadsTo implements View.
func (t *Takeover) LeadsTo() string { return t.Return }
