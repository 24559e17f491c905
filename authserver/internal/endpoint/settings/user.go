package settings

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// A userView is Settings → User.
type userView struct {
	page
	Workspaces []ui.Workspace
}

func (s *Settings) showUser(r *request) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	view := &userView{page{Form: r.typed(url.Values{"name": {r.user.User.Name}})}, workspaceViews(memberships)}
	if err := r.offerPasskey(&view.Frame); err != nil {
		return err
	}
	return r.show("user", view)
}

// setName takes name.
func (s *Settings) setName(r *request) error {
	name := strings.TrimSpace(r.form.Get("name"))
	if note := displayname.Check(name, displayname.MaxLength); note != "" {
		problem := ui.ProblemAt("name", "name", "Your name", note)
		return s.showUser(r.refuse(http.StatusBadRequest, "The name was not saved.", problem))
	}
	err := s.Store.SetName(r.ctx(), r.user.User.ID, name, r.accountEvent(audit.UserRenamed, nil))
	return r.done(err, "Your name was saved.")
}

// An emailView is Settings → User → Change your e-mail address.
type emailView struct {
	page
	Mails   bool   // the deployment sends mail
	Email   string // as typed
	Confirm string // path at which the user must reauthenticate first, or ""
	Open    *useraccount.EmailChange
}

func (s *Settings) showEmail(r *request) error {
	open, err := s.Accounts.OpenEmailChange(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &emailView{Mails: s.Mails, Email: r.form.Get("email"), Open: open}
	if !r.user.MayChangeFactors(s.Now()) {
		back := r.section.Path()
		if view.Email != "" {
			back += "?email=" + url.QueryEscape(view.Email)
		}
		view.Confirm = "/login/again?return=" + url.QueryEscape(back)
	}
	return r.show("changeemail", view)
}

// changeEmail takes email.
func (s *Settings) changeEmail(r *request) error {
	if !s.Mails || !r.user.MayChangeFactors(s.Now()) {
		return s.showEmail(r.refuse(http.StatusConflict, "Nothing was changed."))
	}
	refuse := func(status int, note string) error {
		problem := ui.ProblemAt("email", "email", "New e-mail address", note)
		return s.showEmail(r.refuse(status, "Nothing was changed.", problem))
	}
	email, err := membership.ParseEmail(r.form.Get("email"))
	if refusal, ok := errors.AsType[*membership.Refusal](err); ok {
		return refuse(http.StatusBadRequest, refusal.Message)
	}
	if email == spelling.Key(r.user.User.Email) {
		return refuse(http.StatusBadRequest, "This is your address already.")
	}
	err = s.Accounts.RequestEmailChange(r.ctx(), useraccount.EmailRequest{
		ID:      r.key.Makes,
		UserID:  r.user.User.ID,
		Email:   email,
		Device:  r.device(),
		Network: r.address(),
	}, r.addressEvent(audit.UserEmailRequested))
	if errors.Is(err, useraccount.ErrTooManyChanges) {
		return refuse(http.StatusTooManyRequests, "Too many changes were requested today. Please try again tomorrow.")
	}
	return r.done(err, "We sent a link to both addresses. Open both links to change your address.")
}

// A deletionView is Settings → User → Delete your account.
type deletionView struct {
	page
	Summary useraccount.Summary     // what ends, and what does not
	Managed []useraccount.Workspace // workspaces that need another member who manages members (P2)
	Confirm bool                    // the user must reauthenticate first
}

// deletion reads the view of the page and its form.
func (r *request) deletion() (*deletionView, error) {
	summary, err := r.Accounts.DeletionSummary(r.ctx(), r.user.User.ID)
	confirm := !r.user.MayChangeFactors(r.Now())
	return &deletionView{Summary: summary, Managed: summary.Unmanaged(), Confirm: confirm}, err
}

func (s *Settings) showDeletion(r *request, view *deletionView) error {
	return r.show("deleteaccount", view)
}

// deleteAccount takes confirm.
func (s *Settings) deleteAccount(r *request, view *deletionView) error {
	if view.Confirm || len(view.Managed) > 0 {
		return s.showDeletion(r.refuse(http.StatusConflict, "Nothing was deleted."), view)
	}
	if r.form.Get("confirm") != "yes" {
		problem := ui.ProblemAt("confirm", "confirm", "Confirmation", "Tick this box to delete your account.")
		return s.showDeletion(r.refuse(http.StatusBadRequest, "Nothing was deleted.", problem), view)
	}
	err := s.Accounts.Delete(r.ctx(), r.user.User.ID, r.accountEvent(audit.UserDeleted, nil))
	if errors.Is(err, membership.ErrLastHolder) { // another manager left after the page was shown
		return r.done(nil, "Nothing was deleted.")
	}
	if err != nil {
		return err
	}
	if err := s.Sessions.End(r.w, r.http); err != nil {
		return err
	}
	ui.Redirect(r.w, "/login?"+ui.AccountDeleted+"=1")
	return nil
}

// An appsView is Settings → Connected apps, with every grant of the user.
type appsView struct {
	page
	Live   []connectedApp
	List   listPage             // of the approvals
	Ended  []consent.Connection // approvals
	Former listPage             // of the ended approvals
}

// LooksStolen reports whether a grant ended because a used code or token was presented.
func (*appsView) LooksStolen(reason grant.Reason) bool { return looksStolen(reason) }

// A connectedApp has the approvals of the user for one client.
type connectedApp struct {
	ID        uuid.UUID
	Name      string
	Approvals []approval // on this page
	All       int        // approvals on all pages
}

// An approval is one active grant.
type approval struct {
	consent.Connection
	Ask *ui.Ask // for what it lacks; nil if an administrator cannot give it
}

// endedShown is how many ended approvals a page shows, and mostAsks limits its buttons that ask an administrator.
const (
	endedShown = 10
	mostAsks   = 10
)

func (s *Settings) showApps(r *request) error {
	connections, err := s.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &appsView{}
	var live []consent.Connection
	for _, c := range connections {
		if c.Live(s.Now()) {
			live = append(live, c)
		} else {
			view.Ended = append(view.Ended, c)
		}
	}
	ended := listing[consent.Connection]{Of: "ended approvals", Parameter: "ended", Size: endedShown}
	view.Ended, view.Former = ended.Select(r, view.Ended)
	if err := s.addLive(r, view, live); err != nil {
		return err
	}
	return r.show("apps", view)
}

// addLive adds the page of live connections that the URL selects.
func (s *Settings) addLive(r *request, view *appsView, live []consent.Connection) error {
	live, count := byApplication(live)
	live, view.List = listing[consent.Connection]{Of: "approvals"}.Select(r, live)
	for i, c := range live {
		ask, err := r.askForApp(c, i)
		if err != nil {
			return err
		}
		id, last := c.Grant.ClientID, len(view.Live)-1
		if last < 0 || view.Live[last].ID != id {
			view.Live, last = append(view.Live, connectedApp{ID: id, Name: c.Application, All: count[id]}), last+1
		}
		view.Live[last].Approvals = append(view.Live[last].Approvals, approval{c, ask})
	}
	return nil
}

// byApplication groups the connections by application, and returns the number of connections of each application. The
// application with the latest approval comes first.
func byApplication(connections []consent.Connection) ([]consent.Connection, map[uuid.UUID]int) {
	first, count := map[uuid.UUID]int{}, map[uuid.UUID]int{}
	for i, c := range connections {
		if _, known := first[c.Grant.ClientID]; !known {
			first[c.Grant.ClientID] = i
		}
		count[c.Grant.ClientID]++
	}
	slices.SortStableFunc(connections, func(a, b consent.Connection) int {
		return first[a.Grant.ClientID] - first[b.Grant.ClientID]
	})
	return connections, count
}

// askForApp returns the button for what the nth connection lacks, or nil if it lacks nothing that an administrator can
// give.
func (r *request) askForApp(c consent.Connection, n int) (*ui.Ask, error) {
	missing, off := c.Without(), c.Blocked() == grant.LLMOff
	if n >= mostAsks || !c.Member || (len(missing) == 0 && !off) {
		return nil, nil
	}
	if off {
		missing = nil
	}
	member := workspace.Membership{
		Workspace:   workspace.Workspace{ID: c.Grant.WorkspaceID, Name: c.Workspace},
		Permissions: c.Held,
	}
	ask, err := r.offer(member, missing, c.Application, r.section.Path())
	return &ask, err
}

// looksStolen reports whether a grant ended because a used code or token was presented.
func looksStolen(reason grant.Reason) bool {
	return reason == grant.Replayed || reason == grant.CodeReused || reason == grant.CodeGuessed
}

// disconnectApp takes id, of one approval.
func (s *Settings) disconnectApp(r *request) error {
	return s.revokeGrants(r, "", func(c consent.Connection) bool {
		return c.Grant.ID == r.id() && c.Grant.State != grant.Revoked
	})
}

// disconnectAll takes id, of an application, and ends every approval of it. If the store fails in between, the user can
// send the form again for the others.
func (s *Settings) disconnectAll(r *request) error {
	return s.revokeGrants(r, "all workspaces", func(c consent.Connection) bool {
		return c.Grant.ClientID == r.id() && c.Live(s.Now())
	})
}

const notConnected = "The application is no longer connected."

// revokeGrants revokes the grants of the user that which selects. The notice names from, or the workspace of the grant
// if from is "".
func (s *Settings) revokeGrants(r *request, from string, which func(consent.Connection) bool) error {
	connections, err := s.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	notice := notConnected
	for _, c := range connections {
		if !which(c) {
			continue
		}
		if err := s.Grants.Revoke(r.ctx(), c.Grant, grant.ByUser, r.user.Actor()); err != nil {
			return err
		}
		notice = c.Application + " was disconnected from " + cmp.Or(from, c.Workspace) + "."
	}
	return r.done(nil, notice)
}

// An assistantsView is Settings → Connect an assistant. It tells a user how.
type assistantsView struct {
	page
	Workspaces []place
}

// A place is what an assistant can do in one workspace.
type place struct {
	workspace.Workspace
	Manages bool     // the user may change what connectors may do there
	Enables bool     // the user may switch the LLM integration on
	Missing string   // the first module that is off or not set up, of those that the permissions need, or ""
	Off     bool     // it is off
	Allowed perm.Set // what the user can let an assistant do
	Refused []string // platforms that the workspace does not allow
	Ask     *ui.Ask  // nil if the LLM integration is on, or the user may switch it on
}

// mostPlacesAsk limits the buttons of the page that ask an administrator.
const mostPlacesAsk = 20

func (s *Settings) showAssistants(r *request) error {
	memberships, err := r.workspaces()
	if err != nil {
		return err
	}
	modules, err := s.Store.Modules(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	view := &assistantsView{}
	for i, m := range memberships {
		one := placeOf(m, s.BaseURL+"/mcp", modules[m.Workspace.ID])
		if !one.LLMIntegration && !one.Enables && i < mostPlacesAsk {
			ask, err := r.offer(m, nil, "", r.section.Path())
			if err != nil {
				return err
			}
			one.Ask = &ask
		}
		view.Workspaces = append(view.Workspaces, one)
	}
	return r.show("connect", view)
}

// placeOf returns what an assistant can do in a workspace at the address of the MCP endpoint.
func placeOf(m workspace.Membership, address string, modules map[string]workspace.ModuleState) place {
	policy := m.Workspace.Connectors
	out := place{
		Workspace: m.Workspace,
		Manages:   m.Permissions.Has(perm.AccountAPIAccess),
		Allowed:   m.Permissions.Intersect(policy.Permissions).Usable(address),
	}
	out.Enables = out.Manages && m.Permissions.Has(perm.AccountWriteMembers)
	for _, platform := range workspace.Platforms() {
		if !slices.Contains(policy.Platforms, platform) {
			out.Refused = append(out.Refused, platform.Name())
		}
	}
	for _, p := range out.Allowed {
		state := modules[p.Module()]
		if p.OfModule() && !(state.Enabled && state.Provisioned) {
			out.Missing, out.Off = strings.ToUpper(p.Module()[:1])+p.Module()[1:], !state.Enabled
			break
		}
	}
	return out
}
