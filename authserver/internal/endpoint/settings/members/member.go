package members

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/settings"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/identity"
	"github.com/almonerhq/almoner/shared/perm"
)

const gone = "This person is no longer a member."

// lastHolder is the answer to a change of the last person with a permission (contract, section 7: 409).
const lastHolder = "This is the last person with one of these permissions: Manage API access, See members, Manage " +
	"members. Give that permission to another member first. Nothing was changed."

// member serves GET /settings/members/member.
func (h *Handler) member() http.Handler {
	return h.Page(func(v *settings.Request) error {
		here, err := h.At(v, v.R.URL.Query().Get("tenant"), Section)
		if err != nil {
			return err
		}
		id, err := identity.Parse(v.R.URL.Query().Get("id"))
		if err != nil {
			return h.Done(v, here.Path(Section), gone)
		}
		var asked *askedView
		if v.R.URL.Query().Get("asked") != "" {
			if asked, err = h.askedBy(v, here, id.String()); err != nil {
				return err
			}
		}
		return h.showMember(v, here, id, http.StatusOK, func(page *memberPage) { page.fillIn(asked) })
	})
}

// showMember shows a member as stored, changed by adjust.
func (h *Handler) showMember(
	v *settings.Request, here settings.Scope, id uuid.UUID, status int, adjust func(*memberPage),
) error {
	m, err := h.store.WorkspaceMember(v.R.Context(), here.Workspace.ID, id)
	if errors.Is(err, membership.ErrNoMember) {
		return h.Done(v, here.Path(Section), gone)
	}
	if err != nil {
		return err
	}
	frame, err := h.FrameIn(v, here, Section)
	if err != nil {
		return err
	}
	page := &memberPage{
		Frame:     frame,
		Key:       h.NewKey(v),
		Workspace: here.View(),
		Writes:    here.Permissions.Has(perm.AccountWriteMembers),
		Member:    memberView{m, m.UserID == v.Current.User.ID},
		Choices:   here.Permissions.Union(m.Permissions),
		Chosen:    m.Permissions,
		Seen:      m.Permissions.Scope(),
		Mails:     h.members.Mailed(),
	}
	page.Title = m.Name
	adjust(page)
	h.Pages.Show(v.W, v.R, status, page)
	return nil
}

// setPermissions serves POST /settings/members/permissions: id, permissions, seen. It applies only to the permissions
// that the page showed.
func (h *Handler) setPermissions() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		id, known := v.ID()
		if !known {
			return h.Done(v, here.Path(Section), gone)
		}
		wanted, err := membership.ParsePermissions(v.Form["permissions"])
		seen := perm.ParseScope(v.Form.Get("seen"))
		var m membership.Member
		if err == nil {
			m, err = h.members.ChangePermissions(v.R.Context(), actorIn(v, here), id, wanted, &seen)
		}
		if field, status := refusedField(err); field.Field != "" {
			return h.showMember(v, here, id, status, func(page *memberPage) {
				page.Chosen, page.Seen = perm.FromStrings(v.Form["permissions"]), seen.Scope()
				page.Note = field.Message
				page.Refuse("Nothing was changed.", permissionsProblem("permissions", field.Message))
			})
		}
		switch {
		case errors.Is(err, membership.ErrChanged):
			return h.showMember(v, here, id, http.StatusConflict, func(page *memberPage) {
				page.Problem = "The permissions were changed after you opened this page. Your changes were not saved."
			})
		case errors.Is(err, membership.ErrLastHolder):
			return h.showMember(v, here, id, http.StatusConflict, func(page *memberPage) { page.Problem = lastHolder })
		case errors.Is(err, membership.ErrUnproven):
			return h.showMember(v, here, id, http.StatusConflict, func(page *memberPage) {
				page.Problem = "You cannot add a permission while the e-mail address is not confirmed. Nothing was " +
					"changed."
			})
		case errors.Is(err, membership.ErrNoMember):
			return h.Done(v, here.Path(Section), gone)
		case err != nil:
			return err
		}
		if id == v.Current.User.ID && !wanted.Has(perm.AccountReadMembers) {
			return h.Done(v, "/settings/user", "Your permissions were saved.")
		}
		return h.Done(v, here.Path(Section), "The permissions of "+m.Name+" were saved.")
	})
}

// remove serves POST /settings/members/remove: id, confirm.
func (h *Handler) remove() http.Handler {
	return h.changing(func(v *settings.Request, here settings.Scope) error {
		id, known := v.ID()
		if !known {
			return h.Done(v, here.Path(Section), gone)
		}
		m, err := h.store.WorkspaceMember(v.R.Context(), here.Workspace.ID, id)
		if err == nil && v.Form.Get("confirm") == "yes" {
			var ended membership.Removal
			if ended, err = h.members.Remove(v.R.Context(), actorIn(v, here), id); err == nil {
				return h.removed(v, here, m, ended)
			}
		}
		switch {
		case errors.Is(err, membership.ErrNoMember):
			return h.Done(v, here.Path(Section), gone)
		case errors.Is(err, membership.ErrLastHolder):
			return h.showMember(v, here, id, http.StatusConflict, func(page *memberPage) { page.Problem = lastHolder })
		case err != nil:
			return err
		}
		frame, err := h.FrameIn(v, here, Section)
		if err != nil {
			return err
		}
		ends, err := h.effects(v, here.Workspace.ID, m,
			m.Name+" loses access to the workspace immediately. The account stays.",
			"Invitations that "+m.Name+" sent and that are still open are withdrawn.")
		if err != nil {
			return err
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, &endPage{
			Frame:     frame,
			Key:       h.NewKey(v),
			Workspace: here.View(),
			Heading:   "Remove " + m.Name + " from " + here.Workspace.Name + "?",
			Effects:   ends,
			Action:    Section.Path() + "/remove",
			ID:        id.String(),
			Button:    "Remove " + m.Name,
			Back:      here.Path(Section),
		})
		return nil
	})
}

func (h *Handler) removed(
	v *settings.Request, here settings.Scope, m membership.Member, ended membership.Removal,
) error {
	notice := m.Name + " was removed."
	if ends := ending(len(ended.Grants), ended.Tokens); ends != "" {
		notice += " This ended " + ends + "."
	}
	if ended.More {
		notice += " Other connections and tokens of " + m.Name + " no longer work either."
	}
	if m.UserID == v.Current.User.ID {
		return h.Done(v, "/settings/user", "You left "+here.Workspace.Name+".")
	}
	return h.Done(v, here.Path(Section), notice)
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// ending returns the connections and tokens that end, in words, or "" if there are none.
func ending(connections, tokens int) string {
	var ends []string
	if connections > 0 {
		ends = append(ends, count(connections, "connection"))
	}
	if tokens > 0 {
		ends = append(ends, count(tokens, "personal access token"))
	}
	return strings.Join(ends, " and ")
}

// effects returns what ends with a membership, in words.
func (h *Handler) effects(
	v *settings.Request, workspaceID uuid.UUID, m membership.Member, first, withdrawn string,
) ([]string, error) {
	invitations, err := h.store.Invitations(v.R.Context(), workspaceID)
	if err != nil {
		return nil, err
	}
	out := []string{first}
	if ends := ending(m.Connections, m.Tokens); ends != "" {
		out = append(out, "Ends: "+ends+".")
	}
	sent := func(i membership.Invitation) bool { return i.InviterID == m.UserID && !i.Expired(h.Now()) }
	if slices.ContainsFunc(invitations, sent) {
		out = append(out, withdrawn)
	}
	return out, nil
}

// cannotLeave is the answer to the last person with a permission of account (contract, section 7: 409).
func cannotLeave(workspace string) *ui.Message {
	return &ui.Message{
		Status:  http.StatusConflict,
		Heading: "You cannot leave yet",
		Text: "You are the last person in " + workspace + " with one of these permissions: Manage API access, See " +
			"members, Manage members.",
		Next: "Give that permission to another member before you leave.",
	}
}

// leave serves POST /settings/members/leave: confirm. Each member may leave.
func (h *Handler) leave() http.Handler {
	return h.Form(Section, func(v *settings.Request) error {
		here, err := h.own(v)
		if err != nil {
			return err
		}
		if v.Form.Get("confirm") == "yes" {
			_, err = h.members.Leave(v.R.Context(), actor(v, here.Workspace.ID, nil))
			switch {
			case errors.Is(err, membership.ErrLastHolder):
				h.Pages.ShowError(v.W, v.R, cannotLeave(here.Workspace.Name))
				return nil
			case err != nil:
				return err
			}
			return h.Done(v, "/settings/user", "You left "+here.Workspace.Name+".")
		}
		if v.Current.SecondFactor.MustConfirm() {
			return session.ErrSecondFactor
		}
		m, err := h.store.WorkspaceMember(v.R.Context(), here.Workspace.ID, v.Current.User.ID)
		if err != nil {
			return err
		}
		frame, err := h.Frame(v, ui.Section{Name: "user", Title: "Leave " + here.Workspace.Name})
		if err != nil {
			return err
		}
		ends, err := h.effects(v, here.Workspace.ID, m,
			"You lose access immediately. To come back, you need a new invitation.",
			"Invitations that you sent and that are still open are withdrawn.")
		if err != nil {
			return err
		}
		h.Pages.Show(v.W, v.R, http.StatusOK, &endPage{
			Frame:     frame,
			Key:       h.NewKey(v),
			Workspace: ui.Workspace{ID: here.Workspace.ID.String(), Name: here.Workspace.Name},
			Heading:   "Leave " + here.Workspace.Name + "?",
			Effects:   ends,
			Action:    Section.Path() + "/leave",
			Button:    "Leave this workspace",
			Back:      "/settings/user",
		})
		return nil
	})
}

// own returns the user's membership of the form's workspace. If there is none, it redirects and returns
// settings.ErrAnswered.
func (h *Handler) own(v *settings.Request) (workspace.Membership, error) {
	memberships, err := h.Memberships(v)
	if err != nil {
		return workspace.Membership{}, err
	}
	for _, m := range memberships {
		if m.Workspace.ID.String() == v.Form.Get("tenant") {
			return m, nil
		}
	}
	if err := h.Done(v, "/settings/user", "You are not a member of this workspace."); err != nil {
		return workspace.Membership{}, err
	}
	return workspace.Membership{}, settings.ErrAnswered
}
