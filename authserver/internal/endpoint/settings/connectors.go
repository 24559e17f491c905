package settings

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/connectionlog"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/authserver/internal/oauth/policy"
	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
)

// A connectorsView is Settings → Connectors, for one workspace. A form that needs to be confirmed, or was refused,
// fills in a part of it.
type connectorsView struct {
	page
	LLM         llmForm
	Policy      policyForm
	PolicyNow   string   // what the stored policy allows, in short
	Warning     []string // the effects of a lower policy on existing connections, which the user must confirm
	Grantable   perm.Set // every permission that connectors may have
	Connections connectionList
	Connectors  []connector
	Pages       pager // of the connectors
}

// An llmForm switches the workspace's LLM integration.
type llmForm struct {
	On      bool // the LLM integration is on
	Confirm bool // the page asks whether to switch it off
	Live    int  // connections that lose their access if it is switched off
	Ask     ui.Ask
}

// A policyForm is the current policy, or the submitted one with its errors.
type policyForm struct {
	Platforms []platformChoice
	Chosen    perm.Set
	Days      string
	Seen      string // digest of the policy that the page showed before the change
	MaxDays   int
	Open      bool // the form is shown, and not only its summary
}

// A platformChoice is one platform of connectors.
type platformChoice struct {
	ID, Name, Sentence string
	Chosen             bool
}

func (s *Settings) showConnectors(r *request) error { return s.connectorsPage(r, &connectorsView{}) }

func (s *Settings) connectorsPage(r *request, view *connectorsView) (err error) {
	if view.Connectors, view.Pages, err = s.connectors(r); err != nil {
		return err
	}
	if view.Connections, err = s.connections(r); err != nil {
		return err
	}
	view.LLM.On = r.here.Workspace.LLMIntegration
	if !view.LLM.On && !r.here.Permissions.Has(perm.AccountWriteMembers) {
		if view.LLM.Ask, err = r.offer(r.here, nil, "", r.path(r.section)); err != nil {
			return err
		}
	}
	now := storedPolicy(r.here.Workspace.Connectors)
	if !view.Policy.Open {
		view.Policy = now
	}
	view.PolicyNow, view.Grantable = now.summary(), perm.ForConnectors()
	return r.show("connectors", view)
}

func storedPolicy(p workspace.ConnectorPolicy) policyForm {
	names := make([]string, len(p.Platforms))
	for i, platform := range p.Platforms {
		names[i] = string(platform)
	}
	return typedPolicy(policy.Request{Platforms: names, Permissions: p.Permissions.Strings()},
		strconv.Itoa(p.Days), p.Digest())
}

var platformSentences = map[workspace.Platform]string{
	workspace.Claude:  "Claude on the web, desktop and mobile, and Claude Code.",
	workspace.ChatGPT: "ChatGPT connectors.",
	workspace.Other:   "All other assistants and editors that this deployment allows.",
}

func typedPolicy(wish policy.Request, days, seen string) policyForm {
	form := policyForm{
		Chosen:  perm.FromStrings(wish.Permissions),
		Days:    days,
		Seen:    seen,
		MaxDays: workspace.MaxDays,
	}
	for _, platform := range workspace.Platforms() {
		form.Platforms = append(form.Platforms, platformChoice{
			ID:       string(platform),
			Name:     platform.Name(),
			Sentence: platformSentences[platform],
			Chosen:   slices.Contains(wish.Platforms, string(platform)),
		})
	}
	return form
}

// summary returns what the policy allows, in short.
func (p policyForm) summary() string {
	var names []string
	for _, platform := range p.Platforms {
		if platform.Chosen {
			names = append(names, platform.Name)
		}
	}
	return fmt.Sprintf("%s · %d of %d permissions · %s days", strings.Join(names, ", "),
		len(p.Chosen.Intersect(perm.ForConnectors())), len(perm.ForConnectors()), p.Days)
}

// policyProblem returns the error of a field. The form uses the field names of policy.Refusal, also as element ids.
func policyProblem(r *policy.Refusal) ui.Problem {
	label := map[string]string{
		policy.FieldPlatforms:   "Allowed platforms",
		policy.FieldPermissions: "Allowed permissions",
		policy.FieldDays:        "Days until a connection expires",
	}[r.Field]
	return ui.ProblemAt(r.Field, r.Field, label, r.Message)
}

// setPolicy takes platforms, permissions and days. If the policy affects existing connections, the page first shows
// which, and the form must be sent again with confirm. Both apply only to the policy that the page showed: if it was
// changed since, nothing is saved.
func (s *Settings) setPolicy(r *request) error {
	days, seen := spelling.Digits(spelling.Pasted(r.form.Get("days"))), r.form.Get("seen")
	wish := policy.Request{Platforms: r.form["platforms"], Permissions: r.form["permissions"]}
	wish.Days, _ = strconv.Atoi(days) // text that is not a number becomes 0, which is not between 1 and 30
	typed := typedPolicy(wish, days, seen)
	typed.Open = true
	wanted, err := wish.Accept()
	if refused, ok := errors.AsType[*policy.Refusal](err); ok {
		r.refuse(http.StatusBadRequest, "The policy was not saved.", policyProblem(refused))
		return s.connectorsPage(r, &connectorsView{Policy: typed})
	}
	if err != nil {
		return err
	}
	if now := r.here.Workspace.Connectors; now.Digest() != seen && !now.Equal(wanted) {
		return s.overtaken(r)
	}
	if r.form.Get("confirm") != "yes" {
		effect, err := s.Store.ConnectorPolicyEffect(r.ctx(), r.here.Workspace.ID, wanted)
		if err != nil {
			return err
		}
		if !effect.None() {
			ends := effectWords(effect, "will end immediately", "will lose permissions", "will expire sooner")
			return s.connectorsPage(r, &connectorsView{Policy: typed, Warning: ends})
		}
	}
	err = s.savePolicy(r, seen, wanted)
	if errors.Is(err, policy.ErrChanged) {
		if err = r.enter(r.here.Workspace.ID.String()); err == nil {
			err = s.overtaken(r)
		}
	}
	return err
}

// overtaken shows the current policy to a user whose page showed an older one.
func (s *Settings) overtaken(r *request) error {
	return s.showConnectors(r.refuse(http.StatusConflict,
		"The policy was changed after you opened this page. Your changes were not saved."))
}

func (s *Settings) savePolicy(r *request, seen string, wanted workspace.ConnectorPolicy) error {
	event := r.eventHere(audit.ConnectorPolicyChanged, "tenant:"+r.here.Workspace.ID.String(), nil)
	change, err := s.Store.ReplaceConnectorPolicy(r.ctx(), r.here.Workspace.ID, seen, wanted, event)
	if err != nil {
		return err
	}
	for _, g := range change.EndedGrants {
		s.Grants.PropagateRevocation(r.ctx(), g.ID, g.Ends, grant.ByPolicy)
	}
	notice := "The policy of " + r.here.Workspace.Name + " was saved."
	if change.Before.Equal(change.After) {
		notice = "The policy of " + r.here.Workspace.Name + " was not changed."
	}
	for _, words := range effectWords(change.Effect, "ended", "lost permissions", "got an earlier expiry date") {
		notice += " " + words
	}
	return r.done(notice)
}

// setLLM takes state: on or off. It requires account:write:members. The page first shows the effect of switching off,
// and the form must be sent again with confirm.
func (s *Settings) setLLM(r *request) error {
	state, on, name := r.form.Get("state"), r.here.Workspace.LLMIntegration, r.here.Workspace.Name
	switch {
	case !r.here.Permissions.Has(perm.AccountWriteMembers):
		needed, _ := perm.Describe(perm.AccountWriteMembers)
		err := r.refuseWithout("To switch the LLM integration on or off, you need the permission “" + needed.Title +
			"”. An administrator of the workspace can give it to you.")
		if err != nil {
			return err
		}
		return s.showConnectors(r)
	case state != "on" && state != "off":
		return s.showConnectors(r.refuse(http.StatusBadRequest,
			"Choose whether the LLM integration is on or off. Nothing was changed."))
	case (state == "on") == on:
		return r.done("The LLM integration of " + name + " is already " + state + ".")
	case state == "off" && r.form.Get("confirm") != "yes":
		live, err := s.Store.LiveConnectors(r.ctx(), r.here.Workspace.ID)
		if err != nil {
			return err
		}
		return s.connectorsPage(r, &connectorsView{LLM: llmForm{Confirm: true, Live: live}})
	}
	const feature = "llm_integration"
	event := r.eventHere(audit.FeatureChanged, "tenant:"+r.here.Workspace.ID.String(),
		map[string]any{"feature": feature, "state": state}, perm.AccountWriteMembers)
	err := s.Store.SetFeature(r.ctx(), r.here.Workspace.ID, feature, state == "on", event)
	return r.outcome(err, "The LLM integration of "+name+" is now "+state+".", nil)
}

const connectionsShown = 25

// A connection is one active grant of a member.
type connection struct{ consent.Connection }

// Paused says why the connection has no access now, or is "". The page shows elsewhere that the LLM integration is off.
func (c connection) Paused() string {
	if c.Blocked() != grant.PermissionsLost {
		return ""
	}
	return "No access: " + c.Person + " no longer has any of these permissions."
}

// A connectionList is a page of the workspace's connections.
type connectionList struct {
	Rows   []connection
	Words  string // search text, or ""
	Before bool   // this is not the first page
	More   string // path to the next page, or ""
}

// connections returns the page of the workspace's connections that the URL selects.
func (s *Settings) connections(r *request) (connectionList, error) {
	list := connectionList{Words: readWords(r.query(), "q")}
	wanted := consent.ConnectionPage{Words: list.Words, Limit: connectionsShown + 1}
	if before, err := identity.Parse(r.query().Get("before")); err == nil {
		wanted.Before, list.Before = &before, true
	}
	var found []consent.Connection
	read := func() (err error) {
		found, err = s.Store.WorkspaceConnections(r.ctx(), r.here.Workspace.ID, wanted)
		return err
	}
	if err := r.bounded(list.Words, read); err != nil {
		return connectionList{}, err
	}
	if len(found) > connectionsShown {
		found = found[:connectionsShown]
		list.More = r.path(r.section) + "&before=" + found[connectionsShown-1].Grant.ID.String()
		if list.Words != "" {
			list.More += "&q=" + url.QueryEscape(list.Words)
		}
		list.More += "#connections"
	}
	for _, c := range found {
		list.Rows = append(list.Rows, connection{c})
	}
	return list, nil
}

// bounded runs read. A search may read every connection of the workspace, so it has the same limits as the searches of
// logs.
func (r *request) bounded(words string, read func() error) error {
	if words == "" {
		return read()
	}
	return r.logTurn(func() error { return r.readLog(r.ctx(), read) })
}

// disconnect takes id and ends a connection of any member of the workspace. from is log if the form is on the page with
// the connection log.
func (s *Settings) disconnect(r *request) error {
	back, id := r.path(r.section), r.id()
	if r.form.Get("from") == "log" {
		back = r.path(logSection)
	}
	only := consent.ConnectionPage{Only: &id, Limit: 1}
	found, err := s.Store.WorkspaceConnections(r.ctx(), r.here.Workspace.ID, only)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return r.doneAt(back, notConnected)
	}
	c, reason := found[0], grant.ByAdmin
	if c.Grant.UserID == r.user.User.ID {
		reason = grant.ByUser
	}
	event := r.eventHere(audit.GrantRevoked, "grant:"+id.String(), nil)
	ended, err := s.Store.EndConnection(r.ctx(), r.here.Workspace.ID, id, reason, event)
	if err == nil {
		for _, g := range ended {
			s.Grants.PropagateRevocation(r.ctx(), g.ID, g.Ends, reason)
		}
	}
	return r.outcomeAt(back, err, c.Application+" was disconnected from the account of "+c.Person+".", nil)
}

// A connector is one connector of a workspace, with its latest attempt to connect.
type connector struct{ connectionlog.Connector }

// PlatformName returns the display name of the platform.
func (c connector) PlatformName() string { return workspace.PlatformOf(c.Platform).Name() }

// LatestAttempt returns nil if there is none.
func (c connector) LatestAttempt() *attempt {
	if c.Latest == nil {
		return nil
	}
	return &attempt{*c.Latest, c}
}

// Host returns the host of its metadata document or its callback, or "".
func (c connector) Host() string {
	host := (client.Client{Address: c.Address}).Domain()
	if host == "" && len(c.Redirects) > 0 {
		host = consent.Callback{URI: c.Redirects[0]}.Host()
	}
	return host
}

// connectorsShown is how many connectors a page shows, and maxPage keeps the offset of a page within an integer of the
// store.
const (
	connectorsShown = 25
	maxPage         = 1_000_000
)

// A pager has the paths of the pages before and after a page of connectors, or "".
type pager struct{ Previous, Next string }

// connectors returns the page of the workspace's connectors that the URL selects.
func (s *Settings) connectors(r *request) ([]connector, pager, error) {
	number, err := strconv.Atoi(r.query().Get("page"))
	if err != nil || number < 1 || number > maxPage {
		number = 1
	}
	offset := (number - 1) * connectorsShown
	found, err := s.Store.Connectors(r.ctx(), r.here.Workspace.ID, offset, connectorsShown+1)
	if err != nil {
		return nil, pager{}, err
	}
	path := func(number int) string { return r.path(r.section) + "&page=" + strconv.Itoa(number) + "#log" }
	var pages pager
	if number > 1 {
		pages.Previous = path(number - 1)
	}
	if len(found) > connectorsShown {
		found, pages.Next = found[:connectorsShown], path(number+1)
	}
	out := make([]connector, len(found))
	for i, c := range found {
		out[i] = connector{c}
	}
	return out, pages, nil
}
