package members

import (
	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/shared/perm"
)

// A view is Settings → Members, for one workspace.
type view struct {
	ui.Frame
	Key         string // proves that a form came from this page (endpoint/settings)
	Workspaces  []ui.Workspace
	Workspace   ui.Workspace
	Writes      bool // the user may change members
	Held        perm.Set
	Own         uuid.UUID
	Members     []memberView
	List        settings.List // of the members
	Invitations []invitationView
	Invited     settings.List
	Presets     []membership.Preset
	New         invitationForm
	Sent        *sent

	SecondFactor secondFactorForm
	Asked        *askedView // the request that the form was filled in from, or nil
}

func (*view) Template() string { return "members" }

// A secondFactorForm switches whether members need a second factor.
type secondFactorForm struct {
	Required bool
	Without  int  // number of members without a second factor
	May      bool // the user has used a second factor, and may switch it on
}

// A memberView is a member in the list.
type memberView struct {
	membership.Member
	You bool
}

// An invitationView is an invitation in the list.
type invitationView struct {
	membership.Invitation
	Over bool // it expired
}

// An invitationForm is the submitted form, with its errors.
type invitationForm struct {
	Open   bool
	Email  string
	Chosen perm.Set
	Notes  map[string]string // field → its error
}

// sent is an invitation with its link, which is shown only once.
type sent struct {
	Email string
	Link  string // "" if it was sent by e-mail
}

// A memberPage is the page of one member.
type memberPage struct {
	ui.Frame
	Key       string
	Workspace ui.Workspace
	Writes    bool
	Member    memberView
	Choices   perm.Set // permissions that the user may leave or give
	Chosen    perm.Set
	Seen      string     // the permissions that the page showed, as a scope
	Note      string     // the error of the permissions
	Asked     *askedView // the request that selected permissions, or nil
}

func (*memberPage) Template() string { return "member" }

// An endPage shows what ends with a membership, before it ends.
type endPage struct {
	ui.Frame
	Key       string
	Workspace ui.Workspace
	Heading   string
	Effects   []string
	Action    string // local path of the form
	ID        string // of the member
	Button    string
	Back      string
}

func (*endPage) Template() string { return "memberend" }
