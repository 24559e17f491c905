package ui

import (
	"cmp"
	"slices"
	"time"

	"github.com/almonerhq/almoner/shared/contract/perm"
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
	SwitchTo    string // local path of this request, to sign in as another user
}

// Template implements View.
func (*Choice) Template() string { return "choice" }

// LeadsTo implements View.
func (c *Choice) LeadsTo() string { return c.SwitchTo }

// A Workspace is a workspace that the user can choose.
type Workspace struct {
	ID, Name, Organisation string
	Chosen                 bool
}

// An Event is one line of a log, in words.
type Event struct {
	At        time.Time
	What      string
	Who       string
	Where     string // address of the browser, or ""
	RequestID string
	Alarming  bool
}

// A Token is a personal access token in the list.
type Token struct {
	ID, Name    string
	Workspace   string // "" if the page is about one workspace
	Permissions perm.Set
	Created     time.Time
	Expires     time.Time
	LastUsed    *time.Time
	Ended       string     // how it ended, or "" while it is active
	EndedAt     time.Time  // zero while it is active
	Replaces    *time.Time // creation time of the token that this one replaces when it is first used, or nil
}
