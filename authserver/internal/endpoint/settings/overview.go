package settings

import (
	"errors"
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/usage"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/net/web"
)

// An overviewView is Settings → Assistants → Usage: the connections and tokens of one workspace that are not used,
// those that end soon, and those that are used most.
type overviewView struct {
	page
	Idle     usage.List // a page of them
	More     string     // path to the next page of Idle, or ""
	Before   bool       // this is not the first page of Idle
	Expiring usage.List
	Busiest  usage.List
	All      bool // the lists have those of all members; otherwise the user's own
}

// Most returns what a partial list looked at.
func (*overviewView) Most() int { return usage.LooksAt }

// mostBusy is the number of the most used credentials.
const mostBusy = 10

// Full reports whether more credentials may end soon than the page shows.
func (v *overviewView) Full() bool { return len(v.Expiring.Credentials) == pageSize }

// Path returns the path of the page of a connection or token of the workspace.
func (v *overviewView) Path(c usage.Credential) string {
	name := "token"
	if c.Connection() {
		name = "connection"
	}
	return "/settings/connectors/" + name + "?tenant=" + v.Workspace.ID.String() + "&id=" + c.ID.String()
}

// Others reports whether the list of idle ones has credentials of other members, which the user may not end.
func (v *overviewView) Others() bool {
	other := func(c usage.Credential) bool { return c.UserID != v.User }
	return !v.Writes() && slices.ContainsFunc(v.Idle.Credentials, other)
}

func (s *Settings) showOverview(r *request) error {
	view := &overviewView{All: r.here.Permissions.Has(perm.AccountReadMembers)}
	from := readMark(r.query().Get("before"))
	view.Before = from.ID != uuid.Nil
	by := r.actor()
	err := r.search(func() (err error) {
		view.Idle, err = s.Overviews.Idle(r.ctx(), by, from, pageSize)
		if err == nil {
			view.Expiring, err = s.Overviews.Expiring(r.ctx(), by, r.here.Workspace.Connectors.Days, pageSize)
		}
		if err == nil {
			view.Busiest, err = s.Overviews.Busiest(r.ctx(), by, mostBusy)
		}
		return err
	})
	if err != nil {
		return err
	}
	if !view.Idle.Next.At.IsZero() {
		view.More = r.path(r.section) + "&before=" + writeMark(view.Idle.Next)
	}
	return r.show("overview", view)
}

// endIdle takes credential: the ids of connections and tokens of the page. It ends those that are still idle. If the
// store fails in between, the error page says what has ended, and leads back to the others.
func (s *Settings) endIdle(r *request) error {
	var chosen []uuid.UUID
	for _, text := range r.form["credential"][:min(len(r.form["credential"]), pageSize)] {
		if id, err := web.ParseID(text); err == nil {
			chosen = append(chosen, id)
		}
	}
	if len(chosen) == 0 {
		return s.showOverview(r.refuse(http.StatusBadRequest, "Choose what to end. Nothing was changed."))
	}
	by := r.actor()
	idle, err := s.Overviews.StillIdle(r.ctx(), by, chosen)
	if err != nil {
		return err
	}
	other := func(c usage.Credential) bool { return c.UserID != by.UserID }
	if !r.here.Permissions.Has(perm.AccountWriteMembers) && slices.ContainsFunc(idle, other) {
		return s.showOverview(r.refuseWithout("end the connections and tokens of others"))
	}
	connections, tokens := 0, 0
	for i, c := range idle {
		number, err := &connections, error(nil)
		if c.Connection() {
			_, err = s.Connected.End(r.ctx(), by, c.ID, perm.NewSet(perm.AccountWriteMembers))
		} else {
			number, err = &tokens, s.Tokens.Revoke(r.ctx(), by, c.ID)
		}
		switch {
		case err == nil:
			*number++
		case !errors.Is(err, pat.ErrNoToken) && !errors.Is(err, consent.ErrNoConnection): // it ended at the same time
			if connections+tokens > 0 {
				r.partly = endedNotice(connections, tokens, connections+tokens) + " " + leftNotice(len(idle)-i)
			}
			return err
		}
	}
	return r.done(nil, endedNotice(connections, tokens, len(chosen)))
}

// leftNotice says that so many were not ended.
func leftNotice(left int) string {
	if left == 1 {
		return "1 is left. You can end it on the same page."
	}
	return ui.Number(left) + " are left. You can end them on the same page."
}

// endedNotice says what was ended of the chosen ones.
func endedNotice(connections, tokens, chosen int) string {
	ended, kept := connections+tokens, ""
	if left := chosen - ended; left > 0 {
		kept = " " + ui.Count(left, "other") + " had ended already or had been used since, and did not change."
	}
	switch ended {
	case 0:
		return "Nothing was changed: what you chose had ended already, or had been used since."
	case 1:
		return ending(connections, tokens) + " was ended." + kept
	}
	return ending(connections, tokens) + " were ended." + kept
}
