package ui

import (
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Workspace is one that the user may choose.
type Workspace struct {
	ID, Name, Organisation string
	Chosen                 bool
}

// User is Settings → User.
type User struct {
	Frame
	Workspaces []Workspace
}

func (*User) page() string { return "user" }

// Developers is Settings → Developers, for one workspace.
type Developers struct {
	Frame
	Key        string // proves that a form came from this page (endpoint/settings)
	Workspaces []Workspace
	Workspace  Workspace
	BaseURL    string
	Held       perm.Set
	Shown      *Shown
	Proof      Proof
	Tokens     []Token
	EndedToken []Token
	NewToken   TokenForm
	Apps       []App
	NewApp     AppForm
	Resources  []string
	Retry      Retry
}

func (*Developers) page() string { return "developers" }

// A Retry is the replacement of a token or a secret that was refused for want of a proof: its box is open again, as it
// was sent.
type Retry struct {
	ID        string // of the token or application, "" where nothing was refused
	Note      string // what is wrong with the password, or is to be done instead
	ExpireOld bool
}

// A Proof is what has to be given before anything is made.
type Proof int

// The proofs: none, as there was one lately; the password, in the form; or, from whoever has none, another one on
// another page.
const (
	NoProof Proof = iota
	PasswordProof
	OtherProof
)

// Shown is a value that is on the page this once.
type Shown struct {
	Heading string
	Text    string
	Label   string
	Value   string // "" where there is none to show, or not any more
	Client  string // client id that goes with it, or ""
	IsToken bool
}

// A Token is a personal access token in the list.
type Token struct {
	ID, Name    string
	Workspace   string // "" where the page is about one
	Permissions perm.Set
	Created     time.Time
	Expires     time.Time
	LastUsed    *time.Time
	Ended       string // how it ended, "" while it is active
	TakesOver   string // name and date of the token that ends at this one's first use, or ""
}

// A TokenForm is what was typed into the form for a new token, and what was wrong with it.
type TokenForm struct {
	Open     bool
	Name     string
	Days     int
	Chosen   perm.Set
	Notes    map[string]string // field → what is wrong with it
	Lifetime []int
}

// An App is an OAuth application in the list.
type App struct {
	ID, Name  string
	Connector bool
	Platform  string
	Resource  string
	Method    string
	Redirects []string
	Required  perm.Set
	Created   time.Time
}

// An AppForm is what was typed into the form for a new application, and what was wrong with it.
type AppForm struct {
	Open      bool
	Kind      string // confidential or connector
	Name      string
	Redirects string // one a line
	Chosen    perm.Set
	Platform  string
	Resource  string
	Method    string
	Notes     map[string]string
}

// Apps is Settings → Connected apps.
type Apps struct {
	Frame
	Key   string
	Live  []Connection
	Ended []Connection
}

func (*Apps) page() string { return "apps" }

// A Connection is one grant.
type Connection struct {
	ID                     string
	Application, Workspace string
	Permissions            perm.Set
	Since                  time.Time
	LastUsed               *time.Time
	Ends                   time.Time
	Narrowed               *time.Time // when the workspace's connector policy last took something from it
	Ended                  string     // how it ended, "" while it lives
	Paused                 string     // why it can do nothing at this moment, ""
	Without                perm.Set   // permissions without effect at this moment, unless it is paused
	Alarming               bool       // it was ended because somebody presented what had been used already
}

// Security is Settings → Security.
type Security struct {
	Frame
	Key     string
	SignIns []SignIn
	Tokens  []Token // in every workspace
	Events  []Event
}

func (*Security) page() string { return "security" }

// A SignIn is one browser that is signed in.
type SignIn struct {
	ID       string
	Device   string
	Address  string
	Since    time.Time
	LastSeen time.Time
	This     bool
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

// Audit is the audit log of one workspace.
type Audit struct {
	Frame
	Workspaces []Workspace
	Workspace  Workspace
	Events     []Event
	Older      string // path to older events, or ""
	Later      bool   // this is not the beginning
}

func (*Audit) page() string { return "audit" }
