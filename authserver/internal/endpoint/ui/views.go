package ui

import (
	"net/http"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A Frame is the common part of every page.
type Frame struct {
	Title        string
	Return       string    // local path to which a form of the page leads when it is done; "" for a page of this server
	Template     string    // its name, without .html; Show sets that of the view's type in lower case, if it is empty
	Person       *Person   // the signed-in user; nil if there is none or it is unknown
	Section      string    // the name of the open section of the settings
	Sections     []Section // set by Show
	Parent       string    // the name of the section that the navigation marks, if it is another one
	Place        *Place    // the workspace in the navigation; nil if it is unknown, or the user may open no page of any
	Notice       string    // result of the last action
	Problem      string    // why the last action was refused
	Problems     Problems  // the fields that Problem is about, if any
	ProblemAsk   *Ask      // the button of a problem that an administrator can solve
	Script       bool      // copy buttons, local times, and protection against double clicks; the page works without
	AsksPasskey  bool      // a form of this page requests a passkey with a script
	AsksPassword bool      // a script sends a form of this page, with a password, again while the server is busy
	Watches      bool      // a script of this page looks for new connections
	Offer        Offer     // set by Show
	RequestID    string    // set by Show, on pages about an error
	Refused      bool      // set by Show, on pages with the form that was refused: the title says so (WCAG 2.2, 2.4.2)

	PasskeyOffer string // the key of the form that declines the offer of a passkey, or "" without an offer
	DeviceName   string // of the browser, for the offer
}

func (f *Frame) frame() *Frame { return f }

// Scripts reports whether the page has scripts. One of them shows what is typed as a password.
func (f *Frame) Scripts() bool { return f.Script || f.AsksPasskey || f.AsksPassword || f.Watches }

// A Place is the workspace whose pages the navigation links to: that of the page, or the one that was visited last.
type Place struct {
	ID, Name string
	Held     perm.Set // what the user may do there
	Opens    bool     // there is a page that the user may open
	Others   []Link   // to the other workspaces whose settings the user may open
}

// mostLinks is the number of other workspaces up to which the navigation shows their links without a fold.
const mostLinks = 5

// Folds reports whether the links to the other workspaces are folded, because they are many.
func (p *Place) Folds() bool { return len(p.Others) > mostLinks }

// A Person is the signed-in user.
type Person struct{ Name, Email string }

// Consent is the page on which a user gives an application access.
type Consent struct {
	Frame
	Application  string
	Domain       string // domain of the metadata document, or "" for a registered application
	Workspace    string
	Organisation string
	Granted      perm.Set // what the application may do
	LeftOut      perm.Set // requested, but the user does not hold them
	Withheld     perm.Set // held by the user, but the workspace's connector policy does not allow them
	Presets      bool     // the user may choose read-only access
	ReadOnly     bool     // that is the choice at first
	Approved     bool     // the user has approved the request, and its code is unused
	Days         int      // how long access lasts
	Until        time.Time
	Destination  string // host of the callback
	OwnDevice    string // consent.Callback.OwnDevice
	Lookalike    bool   // the callback's host has letters beyond ASCII
	Ticket       string
	Ask          Ask // for LeftOut
}

// A Message is a page with one message, usually that something cannot be done, why, and what to do next. If its frame
// has a Section, the page has the settings' navigation.
type Message struct {
	Frame
	Status  int
	Heading string
	Text    string // what happened
	Next    string // what to do about it
	List    perm.Set
	Links   []Link
	Asks    []Ask
	Retry   *Retry // of a 503
	Switch  string // local path to return to after signing in as another user, or ""
}

// A Link is a link to another page of this server, or to the website of an application.
type Link struct {
	Href, Text string
	NewTab     bool
}

// A Section is a page that the navigation of the settings links to.
type Section struct {
	Name  string // its path is /settings/ and Name
	Title string
	Needs perm.Permission // if not "", it shows one workspace, and the user needs this permission there

	Parent string // name of the section whose link the navigation marks instead; such a page has no link of its own
}

// Path returns the path of the page.
func (s Section) Path() string { return "/settings/" + s.Name }

// An Ask is the button with which a user asks the administrators of a workspace for access.
type Ask struct {
	Workspace string
	Ticket    string   // for the form, or "" if the deployment sends no mail
	People    []Person // whom to ask instead, if the user may see the members
	None      bool     // no other member can be asked
	Policy    bool     // the members who manage API access are asked, not those who manage members
}

// Choice is the page on which a user chooses the workspace for an application that belongs to none.
type Choice struct {
	Frame
	Application string
	Domain      string      // domain of the metadata document
	Open        []Workspace // workspaces that the user can choose
	Closed      []Workspace // other workspaces of the user, with connectors switched off
	Asks        []Ask       // for Closed
	Ticket      string
}

// A Workspace is a workspace that the user can choose.
type Workspace struct {
	ID, Name, Organisation string
}

// An Offer is the sign-in methods of a deployment besides the password.
type Offer struct {
	Passkeys bool
	Upstream string // display name of the OpenID Connect provider, or ""
}

// With returns pages that show these sign-in methods and whose navigation links to these sections. identify is called
// before a sign-in page is written: it sets a cookie by which the server recognises the browser in the requests that
// the page starts, which can be concurrent.
func (p *Pages) With(o Offer, sections []Section, identify func(http.ResponseWriter, *http.Request)) *Pages {
	with := *p
	with.offer, with.sections, with.identify = o, sections, identify
	return &with
}

// Login is the page that asks for e-mail and password.
type Login struct {
	Frame
	Application string // the application that sent the user here, or ""
	Email       string // as typed
	EmailNote   string // the error of this field
	PasswordGap string // the error of this field
	Unsent      bool   // the notice says that a form was refused because the session had ended
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
	HasPassword  bool
	HasPasskey   bool
	Linked       bool // the user's account at the OpenID Connect provider is linked
	PasswordGap  string
	SecondFactor bool   // the password alone is not enough, because the user has a passkey
	NeedsCode    bool   // the password needs a code of the authenticator app
	CodeNote     string // the error of this field
}

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
	Again    string // local path of the reauthentication that leads back here
}

// A Passkey is one passkey in the list.
type Passkey struct {
	ID, Name string
	Synced   bool // it is stored on more than one device
	Copied   bool // it may have been copied and is refused
	Created  time.Time
	LastUsed *time.Time
}

// Code is the page on which a user with an authenticator app enters a code after the password.
type Code struct {
	Frame
	Ticket   string // the checked password, sealed
	Email    string // of the account
	CodeNote string // the error of this field
}

// Forgotten is the page on which a person requests a link to set a new password.
type Forgotten struct {
	Frame
	Mails     bool // the deployment sends mail
	Requested bool // the request was accepted
	Email     string
	EmailNote string // the error of this field
}

// NewPassword is the page on which a person sets a password with a link.
type NewPassword struct {
	Frame
	Email        string  // of the account
	Token        string  // the secret of the link
	Others       bool    // the link can remove passkeys or linked accounts
	Stay         bool    // the link removes no passkey, because a workspace requires a second factor
	RemoveOthers bool    // the choice about them
	TakesOver    bool    // the address was never confirmed: all that the account has ends
	Ends         *Person // another person who is signed in at the browser, and will not be; nil for none
	Credentials  []EndingCredential
	More         int    // tokens and connections that end and are not listed
	PasswordNote string // the error of this field
}

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

// EmailChange is the page of a link that confirms or stops a change of an e-mail address.
type EmailChange struct {
	Frame
	Token     string // the secret of the link
	Email     string // the new address
	ToNew     bool   // the link was sent to the new address
	Confirmed bool   // with this link
}

// Takeover is the page that says what a sign-in at the identity provider ends, because the address of the account was
// never confirmed.
type Takeover struct {
	Frame
	Key   string
	Email string
}
