package members

import (
	"time"

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
	Members     []memberView
	List        settings.List // of the members
	Invitations []invitationView
	Invited     settings.List
	Sent        *sent

	SecondFactor secondFactorForm
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

// Seen is what the form sends back, so that it renews the invitation once.
func (v invitationView) Seen() string { return v.Expires.UTC().Format(time.RFC3339Nano) }

// An invitePage is the page with the form for an invitation.
type invitePage struct {
	ui.Frame
	Key       string
	Workspace ui.Workspace
	Held      perm.Set
	Presets   []membership.Preset
	Email     string // as typed
	Chosen    perm.Set
	Asked     *askedView // the request that the form was filled in from, or nil
	Invited   bool       // the address has an open invitation, which the form replaces
}

func (*invitePage) Template() string { return "invite" }

// sent is an invitation with its link, which is shown only once.
type sent struct{ Email, Link string }

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
	Mails     bool       // the deployment sends mail
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
