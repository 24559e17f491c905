package settings

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/useraccount"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/displayname"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A userView is Settings → Profile.
type userView struct {
	page
	Rows      []workspace.Membership
	Languages []mail.Language // of mails; none if the deployment sends none
	Language  string          // that the user chose
}

// showUser shows Settings → Profile.
func (s *Settings) showUser(r *request) error {
	view := &userView{Rows: r.memberships}
	view.Form = r.typed(url.Values{"name": {r.user.User.Name}})
	if s.Members.Mailed() {
		view.Languages, view.Language = mail.Languages(), read(r, s.Store.MailRecipient, r.user.User.ID).Language
	}
	r.offerPasskey(&view.Frame)
	return r.show("user", view)
}

// setName takes name.
func (s *Settings) setName(r *request) error {
	name := strings.TrimSpace(r.form.Get("name"))
	if note := displayname.Check(name, displayname.MaxLength); note != "" {
		return s.showUser(r.refuse(http.StatusBadRequest, "The name was not saved.", problemOf("name", note)))
	}
	err := s.Store.SetName(r.ctx(), r.user.User.ID, name, r.accountEvent(audit.UserRenamed, nil))
	return r.done(err, "Your name was saved.")
}

// setMailLanguage takes language.
func (s *Settings) setMailLanguage(r *request) error {
	chosen := r.form.Get("language")
	if !slices.ContainsFunc(mail.Languages(), func(l mail.Language) bool { return l.Name == chosen }) {
		return s.showUser(r.refuse(http.StatusBadRequest, "The language was not saved.", problemOf("language", "")))
	}
	event := r.accountEvent(audit.UserMailsChanged, map[string]any{"language": chosen})
	err := s.Store.SetMailLanguage(r.ctx(), r.user.User.ID, chosen, event)
	return r.done(err, "The language of your e-mails was saved.")
}

// An emailView is Settings → Profile → Change your e-mail address.
type emailView struct {
	page
	Confirm string // path at which the user must reauthenticate first, or ""
	Open    *useraccount.EmailChange
}

func (s *Settings) showEmail(r *request) error {
	open := read(r, s.Accounts.OpenEmailChange, r.user.User.ID)
	view := &emailView{page: page{Form: r.form}, Open: open}
	if !r.user.MayChangeFactors(s.Now()) {
		back := r.section.Path()
		if email := r.form.Get("email"); email != "" {
			back += "?email=" + url.QueryEscape(email)
		}
		view.Confirm = "/login/again?return=" + url.QueryEscape(back)
	}
	return r.show("changeemail", view)
}

// changeEmail takes email.
func (s *Settings) changeEmail(r *request) error {
	if !s.Members.Mailed() || !r.user.MayChangeFactors(s.Now()) {
		return s.showEmail(r.refuse(http.StatusConflict, "Nothing was changed."))
	}
	refuse := func(status int, note string) error {
		return s.showEmail(r.refuse(status, "Nothing was changed.", problemOf("email", note)))
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

// A deletionView is Settings → Profile → Delete your account.
type deletionView struct {
	page
	Summary useraccount.Summary // what ends, and what does not
	Confirm bool                // the user must reauthenticate first
}

// deletion reads the view of the page and its form.
func (r *request) deletion() (*deletionView, error) {
	summary, err := r.Accounts.DeletionSummary(r.ctx(), r.user.User.ID)
	return &deletionView{Summary: summary, Confirm: !r.user.MayChangeFactors(r.Now())}, err
}

func (s *Settings) showDeletion(r *request, view *deletionView) error {
	return r.show("deleteaccount", view)
}

// deleteAccount takes confirm.
func (s *Settings) deleteAccount(r *request, view *deletionView) error {
	if view.Confirm || len(view.Summary.Unmanaged()) > 0 {
		return s.showDeletion(r.refuse(http.StatusConflict, "Nothing was deleted."), view)
	}
	if r.form.Get("confirm") != "yes" {
		return s.showDeletion(r.refuse(http.StatusBadRequest, "Nothing was deleted.", problemOf("confirm", "")), view)
	}
	err := s.Accounts.Delete(r.ctx(), r.user.User.ID, r.accountEvent(audit.UserDeleted, nil))
	if errors.Is(err, membership.ErrLastHolder) { // another manager left after the page was shown
		return r.done(nil, "Nothing was deleted.")
	}
	if err == nil {
		err = s.Sessions.End(r.w, r.http)
	}
	if err == nil {
		ui.Redirect(r.w, "/login?"+ui.AccountDeleted+"=1")
	}
	return err
}

// An endView shows what ends with a membership, before it ends.
type endView struct {
	page
	Member membership.Member
	Leaves bool // the user leaves; otherwise another member is removed
	Would  *effects
}

// ending returns the connections and tokens that end, in words, or "" if there are none.
func ending(connections, tokens int) string {
	var ends []string
	if connections > 0 {
		ends = append(ends, ui.Count(connections, "connection"))
	}
	if tokens > 0 {
		ends = append(ends, ui.Count(tokens, "personal access token"))
	}
	return strings.Join(ends, " and ")
}

// showEnd shows what ends with a membership of a workspace, unless the member cannot be removed now.
func (s *Settings) showEnd(r *request, view *endView, in workspace.Membership, change rehearsal.Change) (err error) {
	r.here = in
	view.Would, _, err = s.rehearse(r, change)
	if err != nil && !errors.Is(err, membership.ErrLastHolder) {
		return err
	}
	return r.show("memberend", view)
}

const notMember = "You are not a member of this workspace."

// leave takes tenant and confirm. Each member may leave, and first sees what ends.
func (s *Settings) leave(r *request) error {
	r.back = userSection.Path()
	own, member := r.membership(r.form.Get("tenant"))
	if !member {
		return r.done(nil, notMember)
	}
	name := own.Workspace.Name
	if r.form.Get("confirm") == "yes" {
		actor := r.actor()
		actor.WorkspaceID = own.Workspace.ID
		_, err := s.Members.Leave(r.ctx(), actor)
		if errors.Is(err, membership.ErrLastHolder) {
			s.Pages.ShowError(r.w, r.http, ui.MessageOf("last holder", name)) // contract, section 7: 409
			return nil
		}
		if errors.Is(err, membership.ErrNoMember) {
			return r.done(nil, notMember)
		}
		return r.done(err, "You left "+name+".")
	}
	if r.user.SecondFactor.MustConfirm() {
		return session.ErrSecondFactor
	}
	m, err := s.Store.WorkspaceMember(r.ctx(), own.Workspace.ID, r.user.User.ID)
	if err != nil {
		return err
	}
	r.section = ui.Section{Name: userSection.Name, Title: "Leave " + name}
	return s.showEnd(r, &endView{Member: m, Leaves: true}, own, rehearsal.Leave(m.UserID))
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

// mostAsks limits the buttons of the page that ask an administrator.
const mostAsks = 10

// showApps groups the live connections by application: the one with the latest approval comes first.
func (s *Settings) showApps(r *request) error {
	view, byApp := &appsView{}, map[uuid.UUID][]consent.Connection{}
	var apps []uuid.UUID
	for _, c := range read(r, s.Store.ConnectedApps, r.user.User.ID) {
		if !c.Live(s.Now()) {
			view.Ended = append(view.Ended, c)
			continue
		}
		if byApp[c.Grant.ClientID] == nil {
			apps = append(apps, c.Grant.ClientID)
		}
		byApp[c.Grant.ClientID] = append(byApp[c.Grant.ClientID], c)
	}
	ended := listing[consent.Connection]{Of: "ended connections", Parameter: "ended", Size: shortPage}
	view.Ended, view.Former = ended.Select(r, view.Ended)
	var live []consent.Connection
	for _, id := range apps {
		live = append(live, byApp[id]...)
	}
	live, view.List = listing[consent.Connection]{Of: "connections"}.Select(r, live)
	for i, c := range live {
		id := c.Grant.ClientID
		if i == 0 || live[i-1].Grant.ClientID != id {
			view.Live = append(view.Live, connectedApp{ID: id, Name: c.Application, All: len(byApp[id])})
		}
		app := &view.Live[len(view.Live)-1]
		app.Approvals = append(app.Approvals, approval{c, r.askForApp(c, i)})
	}
	return r.show("apps", view)
}

// askForApp returns the button for what the nth connection lacks, or nil if it lacks nothing that an administrator can
// give.
func (r *request) askForApp(c consent.Connection, n int) *ui.Ask {
	missing, off := c.Without(), c.Blocked() == grant.LLMOff
	if n >= mostAsks || !c.Member || (len(missing) == 0 && !off) {
		return nil
	}
	if off {
		missing = nil
	}
	member := workspace.Membership{
		Workspace:   workspace.Workspace{ID: c.Grant.WorkspaceID, Name: c.Workspace},
		Permissions: c.Held,
	}
	return r.offer(member, missing, c.Application, r.section.Path())
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

const notConnected = "The app is no longer connected."

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

// A place is what an assistant can do in one workspace.
type place struct {
	workspace.Membership
	Missing string   // title of the first module that is off or not set up, of those that the permissions need, or ""
	Off     bool     // it is off
	Allowed perm.Set // what the user can let an assistant do
	Refused []string // platforms that the workspace does not allow
	Ask     *ui.Ask  // nil if the LLM integration is on, or the user may switch it on
}

// Enables reports whether the user may switch the LLM integration on.
func (p place) Enables() bool {
	return p.Permissions.HasAll(perm.NewSet(perm.AccountAPIAccess, perm.AccountWriteMembers))
}

// mostPlacesAsk limits the buttons of the page that ask an administrator.
const mostPlacesAsk = 20

// A connectView is Settings → Connect an assistant. Its script looks for connections that were made after Since.
type connectView struct {
	listView[place]
	Since int64 // Unix time in milliseconds
}

// showAssistants shows Settings → Connect an assistant, which explains how, for each workspace of the user.
func (s *Settings) showAssistants(r *request) error {
	view, modules := &connectView{Since: s.Now().UnixMilli()}, read(r, s.Store.Modules, r.user.User.ID)
	view.Watches = len(r.memberships) > 0
	for i, m := range r.memberships {
		one := placeOf(m, s.BaseURL+"/mcp", modules[m.Workspace.ID])
		if !m.Workspace.LLMIntegration && !one.Enables() && i < mostPlacesAsk {
			one.Ask = r.offer(m, nil, "", r.section.Path())
		}
		view.Rows = append(view.Rows, one)
	}
	return r.show("connect", view)
}

// serveNewConnection serves GET /settings/connect/new (since, Unix time in milliseconds): the latest live connection of
// the user that was made since then (JSON), or 204.
func (s *Settings) serveNewConnection(r *request) error {
	since, err := strconv.ParseInt(r.form.Get("since"), 10, 64)
	if err != nil {
		r.w.WriteHeader(http.StatusNoContent)
		return nil
	}
	connections, err := s.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	for _, c := range connections { // the latest first
		if c.Live(s.Now()) && c.Grant.Created.UnixMilli() > since {
			web.JSON(r.w, http.StatusOK, map[string]string{"application": c.Application, "workspace": c.Workspace})
			return nil
		}
	}
	r.w.WriteHeader(http.StatusNoContent)
	return nil
}

// placeOf returns what an assistant can do in a workspace at the address of the MCP endpoint.
func placeOf(m workspace.Membership, address string, modules map[string]workspace.ModuleState) place {
	policy := m.Workspace.Connectors
	out := place{Membership: m, Allowed: m.Permissions.Intersect(policy.Permissions).Usable(address)}
	for _, platform := range workspace.Platforms() {
		if !slices.Contains(policy.Platforms, platform) {
			out.Refused = append(out.Refused, platform.Name())
		}
	}
	for _, p := range out.Allowed {
		state := modules[p.Module()]
		if p.OfModule() && !(state.Enabled && state.Provisioned) {
			out.Missing, out.Off = perm.ModuleTitle(p.Module()), !state.Enabled
			break
		}
	}
	return out
}
