package settings

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/rehearsal"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A membersView is Settings → Members, for one workspace.
type membersView struct {
	listView[membership.Member]
	Invitations []membership.Invitation
	Invited     listPage
	Filter      memberFilter
	Requests    []askedView // open requests for access, if the user can answer them
	Asking      listPage
	Sent        []membership.Sent // just now, with links that the page shows once
	Now         time.Time         // tells which invitations have expired
	Without     int               // number of members without two-step sign-in
	May         bool              // the user has used a second factor, and may require it
}

// Role returns the title of the role of a member, or "".
func (*membersView) Role(permissions perm.Set) string {
	return membership.PresetOf(permissions, perm.FullSet()).Title
}

// Seen is what the form of an invitation sends back, so that it renews the invitation once.
func (*membersView) Seen(i membership.Invitation) string {
	return i.Expires.UTC().Format(time.RFC3339Nano)
}

// showMembers shows the list. The mails about requests for access link to it with asked.
func (s *Settings) showMembers(r *request) error {
	if asked, err := web.ParseID(r.form.Get("asked")); err == nil {
		ui.Redirect(r.w, r.path(inviteSection)+"&asked="+asked.String())
		return nil
	}
	return s.listMembers(r)
}

// listedByName is the number of members up to which they are listed by name. In a larger workspace the latest come
// first, since all of them would have to be read to sort them.
const listedByName = 1000

// listMembers shows the members, and invitations that were just sent.
func (s *Settings) listMembers(r *request) error {
	invitations := read(r, s.Store.Invitations, r.here.Workspace.ID)
	all, err := s.Store.ListedMembers(r.ctx(), r.here.Workspace.ID, membership.MemberPage{Limit: listedByName + 1})
	if r.failed = cmp.Or(r.failed, err); r.failed != nil {
		return r.failed
	}
	view := &membersView{Now: s.Now(), Sent: r.sent, May: r.user.SecondFactor.Satisfies(), Filter: readFilter(r)}
	for _, m := range all[:min(len(all), listedByName)] {
		if !m.SecondFactor && !m.Disabled {
			view.Without++
		}
	}
	var listed []membership.ListedMember
	if len(all) > listedByName {
		listed, view.List = s.latestMembers(r, view.Filter)
	} else {
		slices.SortFunc(all, func(a, b membership.ListedMember) int {
			names := strings.Compare(spelling.Plain(a.Name), spelling.Plain(b.Name))
			return cmp.Or(names, strings.Compare(a.Email, b.Email))
		})
		listed, view.List = view.Filter.Select(r, all)
	}
	if r.failed == nil {
		view.Rows, r.failed = s.Store.WorkspaceMembers(r.ctx(), r.here.Workspace.ID, membership.UserIDs(listed))
	}
	if r.here.Permissions.Has(perm.AccountWriteMembers) {
		for _, q := range read(r, s.Store.AccessRequests, r.here.Workspace.ID) {
			view.Requests = append(view.Requests, r.askedView(q))
		}
		asking := listing[askedView]{Of: "requests", Parameter: "requests", Size: shortPage}
		view.Requests, view.Asking = asking.Select(r, view.Requests)
	}
	open := listing[membership.Invitation]{Of: "invitations", Parameter: "invitations", Size: shortPage}
	view.Invitations, view.Invited = open.Select(r, invitations)
	return r.show("members", view)
}

// A memberFilter is the submitted search form of the list.
type memberFilter struct {
	Words      string
	Permission perm.Permission // that the members have, or ""
	TwoStep    string          // on, off, or "" for any; for who may change members alone
}

func readFilter(r *request) (f memberFilter) {
	f.Words = readWords(r.query(), "q")
	if p := perm.Permission(r.query().Get("permission")); perm.Known(p) {
		f.Permission = p
	}
	if state := r.query().Get("two-step"); r.here.Permissions.Has(perm.AccountWriteMembers) &&
		(state == "on" || state == "off") {
		f.TwoStep = state
	}
	return f
}

// Filters reports whether the filter leaves members out.
func (f memberFilter) Filters() bool { return f != memberFilter{} }

// Narrows reports whether the filter has more than words.
func (f memberFilter) Narrows() bool { return f.Permission != "" || f.TwoStep != "" }

// All returns the permissions that the form offers.
func (memberFilter) All() []perm.Entry { return perm.All() }

// fits reports whether a member is one of those that the filter looks for. Marks of letters do not count.
func (f memberFilter) fits(m membership.ListedMember) bool {
	words := spelling.Plain(spelling.Search(f.Words))
	return (f.Permission == "" || m.Permissions.Has(f.Permission)) &&
		(f.TwoStep == "" || m.SecondFactor == (f.TwoStep == "on")) &&
		(strings.Contains(spelling.Plain(m.Name), words) || strings.Contains(spelling.Plain(m.Email), words))
}

// link returns the link to another page with the filter, or "" for "".
func (f memberFilter) link(path string) string {
	for _, parameter := range [][2]string{
		{"q", f.Words}, {"permission", string(f.Permission)}, {"two-step", f.TwoStep},
	} {
		if path != "" && parameter[1] != "" {
			path += "&" + parameter[0] + "=" + url.QueryEscape(parameter[1])
		}
	}
	return path
}

// Select returns the page of a list of all members that the URL selects.
func (f memberFilter) Select(
	r *request, all []membership.ListedMember,
) ([]membership.ListedMember, listPage) {
	number := len(all)
	found := slices.DeleteFunc(all, func(m membership.ListedMember) bool { return !f.fits(m) })
	rows, list := listing[membership.ListedMember]{Of: "members"}.Select(r, found)
	list.All, list.Words = number, f.Words
	list.Previous, list.Later = f.link(list.Previous), f.link(list.Later)
	return rows, list
}

// A search of a large workspace reads the latest members in parts of searchPart, and at most searchParts of them. Its
// page then leads to one that goes on.
const searchPart, searchParts = 2000, 10

// latestMembers returns the page of a large workspace that the URL selects.
func (s *Settings) latestMembers(r *request, f memberFilter) (listed []membership.ListedMember, list listPage) {
	from := readMark(r.query().Get("before"))
	list = listPage{Of: "members", All: listedByName, Many: true, Words: f.Words}
	page, fits := membership.MemberPage{Before: from.At, UserID: from.ID, Limit: pageSize + 1}, f
	if workspace.PlausibleEmail(f.Words) {
		page.Email, fits.Words = f.Words, "" // in any spelling
	} else if f.Filters() {
		page.Limit = searchPart
	}
	search := func() error {
		for range searchParts {
			part, err := s.Store.ListedMembers(r.ctx(), r.here.Workspace.ID, page)
			for _, m := range part {
				page.Before, page.UserID = m.Since, m.UserID
				if fits.fits(m) {
					listed = append(listed, m)
				}
				if len(listed) > pageSize {
					listed = listed[:pageSize]
					page.Before, page.UserID = listed[pageSize-1].Since, listed[pageSize-1].UserID
					return nil
				}
			}
			if err != nil || len(part) < page.Limit {
				page.UserID = uuid.Nil // the end
				return err
			}
		}
		return nil
	}
	if f.Filters() {
		r.failed = r.search(search)
	} else {
		r.failed = search()
	}
	if page.UserID != uuid.Nil {
		mark := writeMark(audit.Cursor{At: page.Before, ID: page.UserID})
		list.Later = f.link(r.path(r.section) + "&before=" + mark)
	}
	return listed, list
}

// changesMembers returns the handler of a form that only a user who may change the members of the workspace may send.
func (s *Settings) changesMembers(act handler) handler {
	return func(r *request) error {
		if r.here.Permissions.Has(perm.AccountWriteMembers) {
			return act(r)
		}
		return s.listMembers(r.refuseWithout("change members"))
	}
}

// actor returns the user as one who changes the members of the page's workspace.
func (r *request) actor() membership.Actor {
	allowed := audit.Authorization{UserID: r.user.User.ID, SignInID: r.user.SignInID}
	if r.section.Needs != "" {
		allowed.Permissions = perm.NewSet(r.section.Needs)
	}
	return membership.Actor{
		UserID:        r.user.User.ID,
		WorkspaceID:   r.here.Workspace.ID,
		Permissions:   r.here.Permissions,
		RequestID:     web.RequestID(r.ctx()),
		Authorization: allowed,
	}
}

// setSecondFactor takes state: on or off. Only a user who has used a second factor at this sign-in can switch it on, so
// that users do not lock themselves out.
func (s *Settings) setSecondFactor(r *request) error {
	state, notice := r.form.Get("state"), "Members of "+r.here.Workspace.Name+" need two-step sign-in now."
	switch state {
	case "on":
	case "off":
		notice = "Members of " + r.here.Workspace.Name + " no longer need two-step sign-in."
	default:
		return s.listMembers(r.refuse(http.StatusBadRequest,
			"Choose whether members need two-step sign-in. Nothing was changed."))
	}
	event := r.eventHere(audit.SecondFactorChanged, "tenant:"+r.here.Workspace.ID.String(),
		map[string]any{"state": state}, perm.AccountWriteMembers)
	err := s.Store.RequireSecondFactor(r.ctx(), r.here.Workspace.ID, state == "on", event)
	if errors.Is(err, session.ErrSecondFactor) {
		return s.listMembers(r.refuse(http.StatusForbidden,
			"Nothing was changed. Use two-step sign-in yourself before you require it of others."))
	}
	return r.done(err, notice)
}

// A memberView is the page of one member.
type memberView struct {
	page
	Member  membership.Member
	Choices perm.Set   // permissions that the user may leave or give
	Asked   *askedView // the request that selected permissions, or nil
	Gone    bool       // the link led to a request that is no longer open
	Would   *effects   // of the permissions in the form, which the user must confirm, or nil
}

// Role returns the title of the role of the member, or "".
func (v *memberView) Role() string {
	return membership.PresetOf(v.Member.Permissions, perm.FullSet()).Title
}

// A role is a preset of the form with permissions.
type role struct {
	membership.Preset
	Chosen bool
}

// Roles returns the roles that a form offers for the permissions of within, the last of which is Custom, or none if
// there is only that one.
func (p *page) Roles(within perm.Set) (roles []role) {
	chosen := p.Chosen()
	is := membership.PresetOf(chosen, within).Name
	for _, preset := range membership.Presets(within) {
		roles = append(roles, role{preset, preset.Name == is})
	}
	if len(roles) == 0 {
		return nil
	}
	custom := membership.Preset{
		Name:     membership.Custom,
		Title:    "Custom",
		Sentence: "What you tick below, and nothing else.",
	}
	return append(roles, role{custom, len(chosen) > 0 && is == membership.Custom})
}

// chooseRole gives the form the permissions of the preset that was chosen. The boxes count instead if it is the one
// that the page showed: without scripts, a box that was ticked since does not change the role.
func (r *request) chooseRole(within perm.Set) {
	chosen := r.form.Get("preset")
	if chosen == "" || chosen == membership.Custom || chosen == r.form.Get("shown") {
		return
	}
	r.form["permissions"] = []string{chosen} // which is unknown, unless it is one of these
	for _, preset := range membership.Presets(within) {
		if preset.Name == chosen {
			r.form["permissions"] = preset.Permissions.Strings()
		}
	}
}

// lastHolder is the response to a change of the last person with a permission (contract, section 7: 409).
const lastHolder = "This is the last person with one of these permissions: Manage API access, See members, Manage " +
	"members. Give that permission to another member first. Nothing was changed."

// showMember shows a member as stored, or as typed if the permissions were refused. With asked in the URL, the
// permissions that the member asked for are selected.
func (s *Settings) showMember(r *request) error { return s.memberPage(r, nil) }

// memberPage is showMember, and asks for confirmation if would is not nil.
func (s *Settings) memberPage(r *request, would *effects) (err error) {
	var asked *askedView
	if r.http.Method != http.MethodPost && r.form.Get("asked") != "" {
		if asked, err = s.askedBy(r, r.id().String()); err != nil {
			return err
		}
	}
	m, err := s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, r.id())
	if errors.Is(err, membership.ErrNoMember) && r.http.Method != http.MethodPost {
		if err = s.showSheet(r); err == nil {
			return nil
		}
	}
	if err != nil {
		return r.done(err, "")
	}
	view := &memberView{Member: m, Choices: r.here.Permissions.Union(m.Permissions), Would: would}
	view.Gone = asked == nil && r.http.Method != http.MethodPost && r.form.Get("asked") != "" &&
		r.here.Permissions.Has(perm.AccountWriteMembers)
	view.Title = m.Name
	chosen, seen := m.Permissions, m.Permissions // seen are those that the page showed
	if r.problems.Of("permissions") != "" || would != nil {
		chosen, seen = perm.FromStrings(r.form["permissions"]), perm.ParseScope(r.form.Get("seen"))
	}
	if asked != nil && !m.Permissions.HasAll(asked.Permissions) {
		view.Asked, chosen = asked, chosen.Union(asked.Permissions.Intersect(view.Choices))
	}
	view.Form = url.Values{"permissions": chosen.Strings(), "seen": {seen.Scope()}}
	return r.show("member", view)
}

// memberPath returns the path of the page of a member or a former member.
func memberPath(workspaceID, user uuid.UUID) string {
	return "/settings/members/member?tenant=" + workspaceID.String() + "&id=" + user.String()
}

// losesByPermissions returns what the new permissions of a member would end, if the user must confirm that, or nil. It
// returns nil too if they are refused.
func (s *Settings) losesByPermissions(r *request, wanted, seen perm.Set) *effects {
	if r.form.Get("confirm") == "yes" || wanted.HasAll(seen) {
		return nil
	}
	would, outcome, err := s.rehearse(r, rehearsal.SetPermissions(r.id(), wanted, &seen))
	if err != nil || !would.Failed && outcome.None() {
		return nil
	}
	return would
}

// setPermissions takes id, permissions or preset, seen and confirm. It applies only to the permissions that the page
// showed. If connected apps or tokens lose something, it first shows what.
func (s *Settings) setPermissions(r *request) error {
	r.chooseRole(r.here.Permissions.Union(perm.ParseScope(r.form.Get("seen"))))
	wanted, err := membership.ParsePermissions(r.form["permissions"])
	var m membership.Member
	if err == nil {
		seen := perm.ParseScope(r.form.Get("seen"))
		if would := s.losesByPermissions(r, wanted, seen); would != nil {
			return s.memberPage(r, would)
		}
		m, err = s.Members.ChangePermissions(r.ctx(), r.actor(), r.id(), wanted, &seen)
	}
	refusal, status := r.refusedField(err)
	switch {
	case refusal.Field != "":
		r.refuse(status, "Nothing was changed.", problemOf("member permissions", refusal.Message))
	case errors.Is(err, membership.ErrChanged):
		r.refuse(http.StatusConflict,
			"The permissions were changed after you opened this page. Your changes were not saved.")
	case errors.Is(err, membership.ErrLastHolder):
		r.refuse(http.StatusConflict, lastHolder)
	case errors.Is(err, membership.ErrUnproven):
		r.refuse(http.StatusConflict,
			"You cannot add a permission while the e-mail address is not confirmed. Nothing was changed.")
	case err == nil && r.id() == r.user.User.ID && !wanted.Has(perm.AccountReadMembers):
		r.back = userSection.Path()
		return r.done(nil, "Your permissions were saved.")
	default:
		return r.done(err, "The permissions of "+m.Name+" were saved.")
	}
	return s.showMember(r)
}

// removeMember takes id and confirm. It first shows what ends.
func (s *Settings) removeMember(r *request) error {
	m, err := s.Store.WorkspaceMember(r.ctx(), r.here.Workspace.ID, r.id())
	if err == nil && r.form.Get("confirm") == "yes" {
		var ended membership.Removal
		if ended, err = s.Members.Remove(r.ctx(), r.actor(), r.id()); err == nil {
			return r.removed(m, ended)
		}
	}
	if errors.Is(err, membership.ErrLastHolder) {
		return s.showMember(r.refuse(http.StatusConflict, lastHolder))
	}
	if err != nil {
		return r.done(err, "")
	}
	return s.showEnd(r, &endView{Member: m}, r.here, rehearsal.RemoveMember(m.UserID))
}

func (r *request) removed(m membership.Member, ended membership.Removal) error {
	notice := m.Name + " was removed."
	if ends := ending(len(ended.Grants), ended.Tokens); ends != "" {
		notice += " This ended " + ends + "."
	}
	if ended.More {
		notice += " Other connections and tokens of " + m.Name + " no longer work either."
	}
	if m.UserID == r.user.User.ID {
		r.back, notice = userSection.Path(), "You left "+r.here.Workspace.Name+"."
	} else {
		r.back = memberPath(r.here.Workspace.ID, m.UserID)
	}
	return r.done(nil, notice)
}
