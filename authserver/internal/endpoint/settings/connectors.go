package settings

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// A connectorsView is Settings → Assistants, for one workspace. A form that needs to be confirmed, or was refused,
// fills in a part of it. Its Form is the current rules, or the submitted ones.
type connectorsView struct {
	page
	Confirm *effects // of switching it off, which the user must confirm
	Ask     *ui.Ask

	Typed   bool     // the form is the submitted one
	Warning *effects // of stricter rules, which the user must confirm

	All         bool // the page is the list of all connections alone
	Count       consent.ConnectionCount
	Connections []consent.Connection  // a page of them, or the latest
	Words       string                // search text, or ""
	Before      bool                  // this is not the first page
	More        string                // path to the next page, or ""
	Attempts    []connectionlog.Found // the latest
}

// mostLatest is the number of connections and attempts that the page shows of each.
const mostLatest = 5

// Connected says how many connections there are.
func (v *connectorsView) Connected() string {
	assistants, least, verb := ui.Count(v.Count.Assistants, "assistant"), "", " are connected."
	others := ui.Count(v.Count.All-v.Count.Assistants, "other app")
	if v.Count.All == 1 {
		verb = " is connected."
	}
	if v.Count.Limited() {
		least = "At least "
	}
	switch {
	case v.Count.All == 0:
		return "No assistant is connected."
	case v.Count.Assistants == 0:
		return "No assistant is connected. " + least + others + verb
	case v.Count.Assistants == v.Count.All:
		return least + assistants + verb
	}
	return least + assistants + " and " + others + verb
}

// Opens reports whether the user may open the page of a connection of a user (audit.Actor.Sees).
func (v *connectorsView) Opens(user uuid.UUID) bool {
	return user == v.User || v.Permissions.Has(perm.AccountReadMembers)
}

// Platforms, Grantable and MaxDays return what a policy can allow.
func (*connectorsView) Platforms() []workspace.Platform { return workspace.Platforms() }
func (*connectorsView) Grantable() perm.Set             { return perm.ForConnectors() }
func (*connectorsView) MaxDays() int                    { return workspace.MaxDays }

func (s *Settings) showConnectors(r *request) error { return s.connectorsPage(r, &connectorsView{}) }

func (s *Settings) connectorsPage(r *request, view *connectorsView) (err error) {
	view.Count = read(r, s.Store.LiveConnections, r.here.Workspace.ID)
	if err = s.connections(r, view); err != nil {
		return err
	}
	if view.All {
		view.Title = "Connected apps"
		return r.show("connectors", view)
	}
	err = s.LogReads.Do(r.ctx(), func() (err error) {
		all, latest := audit.Search{}, audit.Cursor{}
		view.Attempts, err = s.Store.SearchConnections(r.ctx(), r.here.Workspace.ID, all, latest, mostLatest)
		return err
	})
	if err != nil {
		return err
	}
	if !r.here.Workspace.LLMIntegration && !r.here.Permissions.Has(perm.AccountWriteMembers) {
		view.Ask = r.offer(r.here, nil, "", r.path(r.section))
	}
	view.Typed = view.Form != nil
	if policy := r.here.Workspace.Connectors; !view.Typed {
		view.Form = url.Values{
			"permissions": policy.Permissions.Strings(),
			"days":        {strconv.Itoa(policy.Days)},
			"seen":        {policy.Digest()},
		}
		for _, platform := range policy.Platforms {
			view.Form.Add("platforms", string(platform))
		}
	}
	return r.show("connectors", view)
}

// setPolicy takes platforms, permissions and days. If the policy affects existing connections, the page first shows
// which, and the form must be sent again with confirm. Both apply only to the policy that the page showed: if it was
// changed since, nothing is saved.
func (s *Settings) setPolicy(r *request) error {
	days, seen := spelling.Digits(spelling.Pasted(r.form.Get("days"))), r.form.Get("seen")
	wish := consent.PolicyRequest{Platforms: r.form["platforms"], Permissions: r.form["permissions"]}
	wish.Days, _ = strconv.Atoi(days) // text that is not a number becomes 0, which is not between 1 and 30
	r.form.Set("days", days)
	typed := &connectorsView{page: page{Form: r.form}}
	wanted, err := wish.Accept()
	if refused, ok := errors.AsType[*consent.PolicyRefusal](err); ok {
		problem := problemOf("policy "+refused.Field, refused.Message)
		return s.connectorsPage(r.refuse(http.StatusBadRequest, "The assistant rules were not saved.", problem), typed)
	}
	if err != nil {
		return err
	}
	if now := r.here.Workspace.Connectors; now.Digest() != seen && !now.Equal(wanted) {
		return s.overtaken(r)
	}
	var change consent.PolicyChange
	if r.form.Get("confirm") != "yes" {
		var outcome rehearsal.Outcome
		typed.Warning, outcome, err = s.rehearse(r, rehearsal.SetPolicy(wanted, nil))
		if err == nil && (typed.Warning.Failed || !outcome.None()) {
			return s.connectorsPage(r, typed)
		}
	}
	if err == nil {
		change, err = s.Connected.SetPolicy(r.ctx(), r.actor(), seen, wanted, nil)
	}
	if errors.Is(err, consent.ErrPolicyChanged) {
		r.form.Set("tenant", r.here.Workspace.ID.String())
		return r.serve(s.overtaken) // with the changed policy
	}
	if err != nil {
		return err
	}
	return r.done(nil, policyNotice(r.here.Workspace.Name, change))
}

func policyNotice(name string, change consent.PolicyChange) string {
	notice := "The assistant rules of " + name + " were saved."
	if change.Before.Equal(change.After) {
		notice = "The assistant rules of " + name + " were not changed."
	}
	for _, words := range effectWords(change.Effect, "ended", "lost permissions", "got an earlier expiry date") {
		notice += " " + words
	}
	return notice
}

// overtaken shows the current policy to a user whose page showed an older one.
func (s *Settings) overtaken(r *request) error {
	return s.showConnectors(r.refuse(http.StatusConflict,
		"The assistant rules were changed after you opened this page. Your changes were not saved."))
}

// setLLM takes state: on or off. It requires account:write:members. The page first shows the effect of switching off,
// and the form must be sent again with confirm.
func (s *Settings) setLLM(r *request) error {
	state, on, name := r.form.Get("state"), r.here.Workspace.LLMIntegration, r.here.Workspace.Name
	switch {
	case !r.here.Permissions.Has(perm.AccountWriteMembers):
		return s.showConnectors(r.refuseWithout("switch AI assistants on or off"))
	case state != "on" && state != "off":
		return s.showConnectors(r.refuse(http.StatusBadRequest,
			"Choose whether AI assistants are on or off. Nothing was changed."))
	case (state == "on") == on:
		return r.done(nil, "AI assistants are already switched "+state+" in "+name+".")
	case state == "off" && r.form.Get("confirm") != "yes":
		would, _, err := s.rehearse(r, rehearsal.SwitchAssistants(false))
		if err != nil {
			return err
		}
		return s.connectorsPage(r, &connectorsView{Confirm: would})
	}
	err := s.Connected.SwitchAssistants(r.ctx(), r.actor(), state == "on")
	return r.done(err, "AI assistants are now switched "+state+" in "+name+".")
}

// connections adds the latest connections of the workspace, or the page of the list that the URL selects: with all, q
// or before.
func (s *Settings) connections(r *request, view *connectorsView) error {
	query := r.query()
	view.Words, view.All = readWords(query, "q"), query.Has("q") || query.Has("all")
	size, wanted := mostLatest, consent.ConnectionFilter{State: consent.ConnectionActive, Words: view.Words}
	if wanted.Before = readMark(query.Get("before")); wanted.Before.ID != uuid.Nil {
		view.Before, view.All = true, true
	}
	if view.All {
		size = pageSize
	}
	wanted.Limit = size + 1
	read := func() (err error) {
		view.Connections, err = s.Store.Connections(r.ctx(), r.here.Workspace.ID, wanted)
		if len(view.Connections) > size {
			view.Connections = view.Connections[:size]
			last := view.Connections[size-1].Grant
			view.More = r.path(r.section) + "&" + url.Values{"q": {view.Words}}.Encode() + "&before=" +
				writeMark(audit.Cursor{At: last.Created, ID: last.ID})
		}
		return err
	}
	if view.Words != "" { // a search may read every connection of the workspace
		return r.search(read)
	}
	return read()
}

// disconnect takes id and ends a connection of any member of the workspace. from is log if the form is in the
// connection log, and all if it is in the list of all connections.
func (s *Settings) disconnect(r *request) error {
	id := r.id()
	switch r.form.Get("from") {
	case "log":
		r.back = r.path(logSection)
	case "all":
		r.back = r.path(r.section) + "&all=1"
	}
	c, err := s.Connected.End(r.ctx(), r.actor(), id, nil)
	if errors.Is(err, consent.ErrNoConnection) || err == nil && !c.Live(s.Now()) {
		return r.done(nil, notConnected)
	}
	return r.done(err, c.Application+" was disconnected from the account of "+c.Person+".")
}

// PlatformName returns the display name of the platform of a connector.
func (*page) PlatformName(connectorPlatform string) string {
	return workspace.PlatformOf(connectorPlatform).Name()
}

// HostOf returns the host of a connector's metadata document or its callback, or "".
func (*page) HostOf(c connectionlog.Connector) string {
	host := (client.Client{Address: c.Address}).Domain()
	if host == "" && len(c.Redirects) > 0 {
		host = consent.Callback{URI: c.Redirects[0]}.Host()
	}
	return host
}

// A connectionLogView is the connection log of one workspace.
type connectionLogView struct {
	logPage
	Attempts []connectionlog.Found
	Of       string // name of the only connector, or ""
}

func (s *Settings) connectionLog() workspaceLog[connectionlog.Found] {
	return workspaceLog[connectionlog.Found]{
		section: logSection,
		read:    s.Store.SearchConnections,
		atOnce:  pageSize + 1,
		most:    pageSize + 1,
		lines: func(all []connectionlog.Found, _ logSearch) [][]connectionlog.Found {
			return slices.Collect(slices.Chunk(all, 1))
		},
		kinds: []audit.Kind{
			{Name: "approved", Title: "Approved"},
			{Name: "stopped", Title: "Stopped before approval"},
		},
		cursor:   func(f connectionlog.Found) audit.Cursor { return audit.Cursor{At: f.Attempt.At, ID: f.Attempt.ID} },
		name:     "connections",
		exported: audit.ConnectionsExported,
		columns: []string{
			"at", "application", "platform", "person", "email", "outcome", "reason", "requestId", "clientId", "id",
		},
		cells: connectionCells,
		line:  func(f connectionlog.Found) any { return connectionLineOf(f) },
	}
}

func (s *Settings) showConnectionLog(r *request) error {
	found, common, err := s.connectionLog().entries(r)
	if err != nil {
		return err
	}
	view := &connectionLogView{logPage: common, Attempts: slices.Concat(found...)}
	if view.Search.Has("client") && len(found) > 0 {
		view.Of = found[0][0].Connector.Name
	}
	return r.show("connectionlog", view)
}

// A connectionLine is the exported JSON of one attempt.
type connectionLine struct {
	ID          uuid.UUID `json:"id"`
	At          time.Time `json:"at"`
	ClientID    uuid.UUID `json:"clientId"`
	Application string    `json:"application"`
	Platform    string    `json:"platform"`
	Person      string    `json:"person"`
	Email       string    `json:"email"`
	Outcome     string    `json:"outcome"`
	Reason      string    `json:"reason"`
	RequestID   string    `json:"requestId"`
}

func connectionLineOf(f connectionlog.Found) connectionLine {
	return connectionLine{
		ID:          f.Attempt.ID,
		At:          f.Attempt.At.UTC(),
		ClientID:    f.Connector.ID,
		Application: f.Connector.Name,
		Platform:    string(workspace.PlatformOf(f.Connector.Platform)),
		Person:      f.Attempt.Person,
		Email:       f.Attempt.Email,
		Outcome:     string(f.Attempt.Outcome),
		Reason:      f.Attempt.Reason,
		RequestID:   f.Attempt.RequestID,
	}
}

func connectionCells(f connectionlog.Found) []string {
	l := connectionLineOf(f)
	return []string{
		l.At.Format(time.RFC3339), l.Application, l.Platform, l.Person, l.Email, l.Outcome, l.Reason, l.RequestID,
		l.ClientID.String(), l.ID.String(),
	}
}

// effectWords describes what rules do to connections, one sentence for each effect.
func effectWords(e consent.PolicyEffect, end, lose, sooner string) []string {
	does, out := []string{end, lose, sooner}, []string(nil)
	for i, n := range []int{e.End, e.Lose, e.Sooner} {
		if n > 0 {
			out = append(out, ui.Count(n, "connection")+" "+does[i]+".")
		}
	}
	if e.More {
		out = append(out, "Only the latest 10,000 connections were counted.")
	}
	return out
}
