package settings

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/oauth/grant"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
)

// A sheetView is the page of a former member (contract, section 5b): what ended with the membership, and what is left
// to do outside.
type sheetView struct {
	page
	Who         string // name of the former member, or "" if the account was deleted
	Left        bool   // the person left; otherwise they were removed
	At          time.Time
	By          string // who removed the person
	Connections []endedItem
	Tokens      []endedItem
	Webhooks    []endedItem // that the person added or enabled last
	Invitations []endedItem // that the person sent
	Unseen      string      // the lists that the user may not see, or ""
}

// An endedItem is what ended with a membership.
type endedItem struct {
	Name    string
	Detail  string     // such as what happens to it, or ""
	Created *time.Time // of a connection
	Used    *time.Time // last use of a connection
	Href    string     // of its page, or ""
}

// An endedList is one of the lists of the sheet.
type endedList struct {
	Title, Of string
	Items     []endedItem
}

// onPaper is the number of items of each list that are printed, so that the sheet is one page.
const onPaper = 6

// sheetDays is for how many days the sheet can be read, and mostEnded the number of items of a list.
const sheetDays, mostEnded = 90, 200

// Cut reports whether the nth item of a list is not printed.
func (endedList) Cut(n int) bool { return n >= onPaper }

// Hidden returns the number of the items that are not printed.
func (l endedList) Hidden() int { return max(0, len(l.Items)-onPaper) }

// Full reports whether the list may have more items.
func (l endedList) Full() bool { return len(l.Items) == mostEnded }

// Lists returns the lists that are not empty.
func (v *sheetView) Lists() []endedList {
	return slices.DeleteFunc([]endedList{
		{"Connected apps", "connected app", v.Connections},
		{"Personal access tokens", "token", v.Tokens},
		{"Webhooks", "webhook", v.Webhooks},
		{"Invitations that were still open", "invitation", v.Invitations},
	}, func(l endedList) bool { return len(l.Items) == 0 })
}

// Apps returns the names of the first connected apps.
func (v *sheetView) Apps() (names []string) {
	for _, c := range v.Connections {
		if !slices.Contains(names, c.Name) && len(names) < 3 {
			names = append(names, c.Name)
		}
	}
	return names
}

// Name returns the name of the person for a heading, and Called the same within a sentence.
func (v *sheetView) Name() string   { return cmp.Or(v.Who, "A deleted user") }
func (v *sheetView) Called() string { return cmp.Or(v.Who, "the deleted user") }

// showSheet shows the sheet of the former member that the request names, or returns membership.ErrNoMember.
func (s *Settings) showSheet(r *request) error {
	view, user := &sheetView{}, r.id()
	_, _, exists, err := s.Store.UserByID(r.ctx(), user)
	if err != nil {
		return err
	}
	var removal audit.Entry
	err = r.search(func() (err error) {
		if removal, err = r.membershipEnd(user); err == nil {
			err = r.endedWith(view, removal)
		}
		return err
	})
	if err != nil {
		return err
	}
	if exists {
		view.Who = removal.Person
	}
	view.At, view.Left = removal.At, removal.Action == audit.MemberLeft
	view.By = eventView(removal, nil).Who
	view.Title = view.Name()
	return r.show("formermember", view)
}

// events reads the latest events of the workspace that a search finds.
func (r *request) events(search audit.Search, limit int) ([]audit.Entry, error) {
	return r.Store.EventsOfWorkspace(r.ctx(), r.here.Workspace.ID, search, audit.Cursor{}, limit)
}

// membershipEnd returns the event with which the membership of a user ended in the last 90 days, or
// membership.ErrNoMember.
func (r *request) membershipEnd(user uuid.UUID) (last audit.Entry, err error) {
	since := r.Now().AddDate(0, 0, -sheetDays)
	for _, action := range []audit.Action{audit.MemberRemoved, audit.MemberLeft} {
		found, err := r.events(audit.Search{User: user, Action: action, Since: since}, 1)
		if err != nil {
			return last, err
		}
		if len(found) > 0 && found[0].At.After(last.At) {
			last = found[0]
		}
	}
	if last.ID == uuid.Nil {
		return last, membership.ErrNoMember
	}
	return last, nil
}

// endedWith adds what ended with a membership, as far as the user may see it on other pages: the connections and tokens
// of members with the permission for API access, or for changing members, whose pages say what a removal would end;
// webhooks with that for API access.
func (r *request) endedWith(view *sheetView, removal audit.Entry) error {
	user, since := *removal.UserID, removal.At.Add(-time.Minute) // the transaction may have begun before
	api := r.here.Permissions.Has(perm.AccountAPIAccess)
	if api || r.here.Permissions.Has(perm.AccountWriteMembers) {
		if err := r.endedCredentials(view, user, since); err != nil {
			return err
		}
		view.Unseen = "webhooks"
	} else {
		view.Unseen = "connected apps, tokens and webhooks"
	}
	if api {
		view.Unseen = ""
		endpoints, err := r.Store.Webhooks(r.ctx(), r.here.Workspace.ID)
		if err != nil {
			return err
		}
		for _, e := range endpoints {
			if e.UserID == user {
				view.Webhooks = append(view.Webhooks, endedItem{Name: hostOf(e), Detail: "Gets no more events"})
			}
		}
	}
	emails, err := r.Store.WithdrawnInvitations(r.ctx(), r.here.Workspace.ID, user, since, removal.At)
	for _, email := range emails {
		view.Invitations = append(view.Invitations, endedItem{Name: email})
	}
	return err
}

// endedCredentials adds the connections and tokens of a user that ended with the membership: by the reason of their
// end, and by the events that say so.
func (r *request) endedCredentials(view *sheetView, user uuid.UUID, since time.Time) error {
	connections, err := r.Connected.Store.Connections(r.ctx(), r.here.Workspace.ID, consent.ConnectionFilter{
		UserID: &user,
		State:  consent.ConnectionEnded,
		Reason: grant.MembershipOver,
		Since:  since,
		Limit:  mostEnded,
	})
	if err != nil {
		return err
	}
	for _, c := range connections {
		view.Connections = append(view.Connections, r.endedConnection(c))
	}
	tokens, err := r.events(audit.Search{
		User:   user,
		Action: audit.TokenRevoked,
		Reason: string(grant.MembershipOver),
		Since:  since,
	}, mostEnded)
	for _, e := range tokens {
		view.Tokens = append(view.Tokens, endedItem{Name: eventView(e, nil).Text("name")})
	}
	return err
}

// hostOf returns the host of an endpoint: the rest of its URL may be secret.
func hostOf(e webhook.Endpoint) string {
	address, err := url.Parse(e.URL)
	if err != nil {
		return e.URL
	}
	return address.Host
}

// endedConnection describes a connection, with a link to its page if the user may open it.
func (r *request) endedConnection(c consent.Connection) endedItem {
	item := endedItem{Name: c.Application, Created: &c.Grant.Created, Used: c.Grant.LastUsed}
	if r.here.Permissions.Has(perm.AccountAPIAccess) {
		item.Href = foundConnection{Connection: c, Admin: true}.Path()
	}
	return item
}
