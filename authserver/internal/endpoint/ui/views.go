package ui

import (
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Frame is what every page has around its content.
type Frame struct {
	Title       string
	Person      *Person  // who is signed in; nil: nobody, or not known
	Section     string   // the part of the settings that is open
	Manages     bool     // the person may open the pages about workspaces: Developers, Connectors, Audit log
	WorkspaceID string   // the workspace that the page is of, for the links to its other pages; "" where it is of none
	Notice      string   // of what was just done
	Problem     string   // of what was just refused
	ProblemAt   string   // the id of the field that it is about, or ""
	Script      bool     // copy buttons, and no form sent twice by a double click; the page works without
	AsksPasskey bool     // a form of this page asks for a passkey, by a script
	Offer       Offer    // set by Show
	FormTargets []string // origins that a form of this page ends at, besides this one (CSP form-action)
	RequestID   string   // set by Show
}

func (f *Frame) frame() *Frame { return f }

// A Person is who is signed in.
type Person struct{ Name, Email string }

// Login is the page that asks for e-mail and password.
type Login struct {
	Frame
	Application string // that sent the user here, or ""
	Return      string // local path to go on to
	Email       string // as it was typed
	EmailNote   string // what is wrong with this field
	PasswordGap string // what is wrong with this field
}

func (*Login) page() string { return "login" }

// Consent is the page on which a user gives an application access.
type Consent struct {
	Frame
	Application  string
	Domain       string // of the application's own description, where nobody has registered it here
	Workspace    string
	Organisation string
	Granted      perm.Set // what it will be able to do
	LeftOut      perm.Set // asked for, and not held by the user
	Withheld     perm.Set // held by the user, and not allowed by the workspace's connector policy
	Presets      bool     // the user may give the reading part alone
	Days         int      // how long access lasts
	Until        time.Time
	Destination  string // host of the callback
	Loopback     bool   // the callback is on the user's own computer
	Lookalike    bool   // the callback's host has letters beyond ASCII
	Ticket       string
	SwitchTo     string // local path of this very request, to sign in as somebody else
}

func (*Consent) page() string { return "consent" }

// A Message is a page that says one thing: mostly that something cannot be done, why, and what to do next. Where its
// frame names a Section, it has the navigation of the settings around it.
type Message struct {
	Frame
	Status  int
	Heading string
	Text    string // what happened
	Next    string // what to do about it
	List    perm.Set
	Links   []Link
	Switch  string // local path to come back to after signing in as somebody else, or ""
}

func (*Message) page() string { return "message" }

// A Link leads to another page of ours.
type Link struct{ Href, Text string }
