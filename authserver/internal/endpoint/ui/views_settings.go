package ui

import (
	"time"

	"github.com/almonerhq/almoner/shared/perm"
)

// A Workspace is a workspace that the user can choose.
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

// A Retry is the replacement of a token or a secret that was refused because the user was not authenticated. Its row is
// shown open, with its input.
type Retry struct {
	ID        string // of the token or application, or "" if nothing was refused
	Note      string // the error of the password field
	ExpireOld bool
}

// A Proof is how the user must authenticate before a credential is created.
type Proof int

// NoProof means that there was a recent authentication, PasswordProof that the form asks for the password, and
// OtherProof that a user without a password authenticates on another page.
const (
	NoProof Proof = iota
	PasswordProof
	OtherProof
)

// Shown is a value that the page shows only once.
type Shown struct {
	Heading string
	Text    string
	Label   string
	Value   string // "" if there is none to show, or no longer
	Client  string // client id of the value, or ""
	IsToken bool
}

// A Token is a personal access token in the list.
type Token struct {
	ID, Name    string
	Workspace   string // "" if the page is about one workspace
	Permissions perm.Set
	Created     time.Time
	Expires     time.Time
	LastUsed    *time.Time
	Ended       string // how it ended, or "" while it is active
	TakesOver   string // name and date of the token that ends when this one is first used, or ""
}

// A TokenForm is the submitted form for a new token, with its errors.
type TokenForm struct {
	Open     bool
	Name     string
	Days     int
	Chosen   perm.Set
	Notes    map[string]string // field → its error
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

// An AppForm is the submitted form for a new application, with its errors.
type AppForm struct {
	Open      bool
	Kind      string // confidential or connector
	Name      string
	Redirects string // one per line
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
	Narrowed               *time.Time // when the connector policy last narrowed it
	Ended                  string     // how it ended, or "" while it is active
	EndedAt                time.Time
	Paused                 string   // why it cannot do anything now, or ""
	Without                perm.Set // permissions without effect now, unless it is paused
	Alarming               bool     // it ended because a used code or token was presented
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

// A SignIn is one signed-in browser.
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
	Later      bool   // this is not the first page
}

func (*Audit) page() string { return "audit" }
