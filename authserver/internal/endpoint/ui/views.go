package ui

import (
	"cmp"
	"slices"
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Frame is the common part of every page.
type Frame struct {
	Title       string
	Person      *Person   // the signed-in user; nil if there is none or it is unknown
	Section     string    // the name of the open section of the settings
	Sections    []Section // set by Show
	Parent      string    // the name of the section that the navigation marks, if it is another one
	Held        perm.Set  // what the user holds in any workspace, for the sections that need a permission
	Switcher    *Switcher // of the workspace; nil if the user has one or none
	WorkspaceID string    // the page's workspace, for the links to its other pages; "" if it has none
	Notice      string    // result of the last action
	Problem     string    // why the last action was refused
	Problems    Problems  // the fields that Problem is about, if any
	ProblemAsk  *Ask      // the button of a problem that an administrator can solve
	Script      bool      // copy buttons, local times, and protection against double clicks; the page works without
	AsksPasskey bool      // a form of this page requests a passkey with a script
	Offer       Offer     // set by Show
	RequestID   string    // set by Show, on pages about an error
	Refused     bool      // set by Show, on pages with the form that was refused: the title says so (WCAG 2.2, 2.4.2)

	PasskeyOffer string // the key of the form that declines the offer of a passkey, or "" without an offer
	DeviceName   string // of the browser, for the offer
}

func (f *Frame) frame() *Frame { return f }

// LeadsTo implements View for a page whose forms lead to pages of this server.
func (f *Frame) LeadsTo() string { return "" }

// A Switcher is the form in the header of the settings that chooses the workspace of the pages.
type Switcher struct {
	Key        string
	Section    string // the open one, which is shown again
	Workspaces []Workspace
}

// A Person is the signed-in user.
type Person struct{ Name, Email string }

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
	Days         int      // how long access lasts
	Until        time.Time
	Destination  string // host of the callback
	OwnDevice    string // consent.Callback.OwnDevice
	Lookalike    bool   // the callback's host has letters beyond ASCII
	Ticket       string
	SwitchTo     string // local path of this request, to sign in as another user
	Ask          Ask    // for LeftOut
}

// Template implements View.
func (*Consent) Template() string { return "consent" }

// LeadsTo implements View.
func (c *Consent) LeadsTo() string { return c.SwitchTo }

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

// Template implements View.
func (*Message) Template() string { return "message" }

// LeadsTo implements View.
func (m *Message) LeadsTo() string { return cmp.Or(m.Switch, m.Retry.leadsTo()) }

// A Link is a link to another page of this server.
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

// SectionNamed returns the section with the name, and false if there is none.
func (p *Pages) SectionNamed(name string) (Section, bool) {
	for _, s := range slices.Concat(p.sections, p.subsections) {
		if s.Name == name {
			return s, true
		}
	}
	return Section{}, false
}

// Navigating returns pages whose navigation links to these sections. The subsections have no link of their own.
func (p *Pages) Navigating(sections, subsections []Section) *Pages {
	navigating := *p
	navigating.sections, navigating.subsections = sections, subsections
	return &navigating
}
