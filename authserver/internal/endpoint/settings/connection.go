package settings

import (
	"errors"
	"net/http"
	"net/url"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
)

// A foundConnection is a connection with the user who opens its page: its own user, or an administrator.
type foundConnection struct {
	consent.Connection
	By    audit.Actor
	Admin bool // the page is that of the administrators of the workspace
}

// Path returns the path of the page.
func (c foundConnection) Path() string {
	if c.Admin {
		return "/settings/connectors/connection?tenant=" + c.Grant.WorkspaceID.String() + "&id=" + c.Grant.ID.String()
	}
	return "/settings/apps/app?id=" + c.Grant.ID.String()
}

// ownConnection reads the user's connection that the request names, in any workspace.
func (r *request) ownConnection() (foundConnection, error) {
	connections, err := r.Store.ConnectedApps(r.ctx(), r.user.User.ID)
	for _, c := range connections {
		if c.Grant.ID == r.id() {
			return foundConnection{c, r.actorIn(c.Grant.WorkspaceID), false}, nil
		}
	}
	if err == nil {
		err = consent.ErrNoConnection
	}
	return foundConnection{}, err
}

// memberConnection reads the connection of the workspace that the request names, if the user may see it.
func (r *request) memberConnection() (foundConnection, error) {
	c, err := r.Connected.Find(r.ctx(), r.actor(), r.id())
	return foundConnection{c, r.actor(), true}, err
}

// actorIn returns the user as one who acts in one of their workspaces, on a page that belongs to none.
func (r *request) actorIn(workspaceID uuid.UUID) audit.Actor {
	by := r.actor()
	by.WorkspaceID = workspaceID
	return by
}

// A connectionView is the page of one connection.
type connectionView struct {
	page
	Found    foundConnection
	Active   bool
	Own      bool // it is the user's
	Activity activity
}

// LooksStolen reports whether the connection ended because a used code or token was presented.
func (*connectionView) LooksStolen(reason grant.Reason) bool { return looksStolen(reason) }

// showConnection shows what a connection did and may do, with the form as sent if it was refused.
func (s *Settings) showConnection(r *request, found foundConnection) error {
	view := &connectionView{Found: found, Active: found.Live(s.Now())}
	view.Own = found.Grant.UserID == r.user.User.ID
	view.Activity = r.activity(found.By, found.Grant.ID)
	view.Title = found.Application
	view.Form = r.typed(url.Values{"permissions": found.Grant.Permissions.Strings()})
	return r.show("connection", view)
}

// narrowConnection takes id and permissions, those that remain.
func (s *Settings) narrowConnection(r *request, found foundConnection) error {
	permissions, err := membership.ParsePermissions(r.form["permissions"])
	if err == nil {
		_, err = s.Connected.Narrow(r.ctx(), found.By, found.Grant.ID, permissions)
	}
	missing, invalid := errors.AsType[*membership.Refusal](err)
	refused, wider := errors.AsType[*consent.NarrowRefusal](err)
	const unchanged = "Nothing was changed."
	switch {
	case invalid:
		problem := problemOf("connection permissions", missing.Message)
		return s.showConnection(r.refuse(http.StatusBadRequest, unchanged, problem), found)
	case wider:
		problem := problemOf("connection permissions", narrowWords(refused))
		return s.showConnection(r.refuse(http.StatusBadRequest, unchanged, problem), found)
	case errors.Is(err, audit.ErrOthers):
		return s.showConnection(r.refuseWithout("change the connections of others"), found)
	}
	r.back = found.Path()
	return r.done(err, "From now on, "+found.Application+" can do only what you left.")
}

// narrowWords returns the message for the form's user. The message of consent.NarrowRefusal names identifiers.
func narrowWords(refused *consent.NarrowRefusal) string {
	if len(refused.Needed) > 0 {
		return "Also keep “" + titles(refused.Needed)[0] + "”. Another permission that you left requires it."
	}
	return refused.Message
}

// A foundToken is an active personal access token with the user who opens its page.
type foundToken struct {
	pat.MemberToken
	Workspace string
	By        audit.Actor
	Admin     bool // the page is that of the administrators of the workspace
}

// ownToken reads the user's active token that the request names, in any workspace, including those where the user may
// no longer create tokens.
func (r *request) ownToken() (foundToken, error) {
	tokens, err := r.Store.ActiveTokens(r.ctx(), r.user.User.ID)
	for _, t := range tokens {
		if t.ID == r.id() {
			return foundToken{pat.MemberToken{Token: t.Token}, t.Workspace, r.actorIn(t.WorkspaceID), false}, nil
		}
	}
	if err == nil {
		err = pat.ErrNoToken
	}
	return foundToken{}, err
}

// anyToken is ownToken without more than the token.
func (r *request) anyToken() (pat.Token, error) {
	found, err := r.ownToken()
	return found.Token, err
}

// memberToken reads the active token of the workspace that the request names, if the user may see it.
func (r *request) memberToken() (foundToken, error) {
	t, err := r.Tokens.Find(r.ctx(), r.actor(), r.id())
	return foundToken{t, r.here.Workspace.Name, r.actor(), true}, err
}

// A tokenView is the page of one personal access token.
type tokenView struct {
	page
	Found      foundToken
	Developers bool // the user came from Settings → Developers
	Replaces   bool // the user may replace it there
	Own        bool // it is the user's
	Activity   activity
}

// showToken shows what a token did and may do. With tenant in the URL, it leads back to Settings → Developers.
func (s *Settings) showToken(r *request, found foundToken) error {
	view := &tokenView{Found: found, Own: found.UserID == r.user.User.ID}
	if own, member := r.membership(found.WorkspaceID.String()); member && !found.Admin {
		view.Replaces = own.Permissions.Has(perm.AccountAPIAccess)
		view.Developers = view.Replaces && r.form.Get("tenant") != ""
	}
	view.Activity = r.activity(found.By, found.ID)
	view.Title = found.Name
	return r.show("token", view)
}

// revokeMemberToken takes id and revokes a token of any member of the workspace.
func (s *Settings) revokeMemberToken(r *request, found foundToken) error {
	err := s.Tokens.Revoke(r.ctx(), found.By, found.ID)
	if errors.Is(err, audit.ErrOthers) {
		return s.showToken(r.refuseWithout("revoke the tokens of others"), found)
	}
	r.back = r.path(usageSection)
	return r.done(err, "The token "+found.Name+" was revoked.")
}
