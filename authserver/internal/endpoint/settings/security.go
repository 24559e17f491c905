package settings

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/password"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A signInsView is Settings → Security → Where you are signed in.
type signInsView struct {
	page
	SignIns  []session.SignIn // that of this browser first
	This     uuid.UUID        // the sign-in of this browser
	Browsers listPage
}

// Device returns the display name of a browser.
func (*signInsView) Device(s session.SignIn) string { return session.DeviceName(s.UserAgent) }

// signIns reads a page of the user's sign-ins.
func (r *request) signIns(size int) signInsView {
	view := signInsView{This: r.user.SignInID}
	view.SignIns, view.Browsers = listing[session.SignIn]{
		Of:    "browsers",
		Size:  size,
		First: func(s session.SignIn) bool { return s.ID == view.This },
	}.Select(r, read(r, r.Store.SignInsOf, r.user.User.ID))
	return view
}

func (s *Settings) showSignIns(r *request) error {
	view := r.signIns(pageSize)
	return r.show("signins", &view)
}

// A securityView is Settings → Security: how the user signs in, and the latest sign-ins and events. Other pages have
// the others, and the tokens.
type securityView struct {
	signInsView
	Events      []eventGroup
	Tokens      int  // active, in all workspaces
	HasPassword bool // the user can sign in with it
	HasApp      bool // the user has an authenticator app
	HasPasskey  bool
	TwoStep     bool        // the user has a passkey or an authenticator app
	Mails       []mail.Kind // that the user can turn off; empty if the deployment sends no mail
	Unwanted    []mail.Kind
}

// Wants reports whether the user gets mails of a kind.
func (v *securityView) Wants(k mail.Kind) bool { return !slices.Contains(v.Unwanted, k) }

// How many sign-ins and events Settings → Security shows, and how many events it groups.
const fewSignIns, fewEvents, recentEvents = 3, 3, 30

func (s *Settings) showSecurity(r *request) error {
	user := r.user.User.ID
	view := &securityView{
		signInsView: r.signIns(fewSignIns),
		Tokens:      len(read(r, s.Store.ActiveTokens, user)),
		HasApp:      read(r, s.Store.Authenticator, user).Active,
		HasPasskey:  read(r, s.Store.HasPasskey, user),
		HasPassword: read(r, s.hasPassword, user),
		TwoStep:     r.user.SecondFactor.Has,
	}
	view.Events, _ = r.ownEvents(audit.Cursor{}, recentEvents)
	view.Events = view.Events[:min(len(view.Events), fewEvents)]
	if s.Members.Mailed() {
		view.Mails, view.Unwanted = mail.OptionalKinds(), read(r, s.Store.UnwantedMails, user)
	}
	r.offerPasskey(&view.Frame)
	return r.show("security", view)
}

func (s *Settings) hasPassword(ctx context.Context, user uuid.UUID) (bool, error) {
	_, hash, _, err := s.Store.UserByID(ctx, user)
	return hash != "", err
}

// An eventGroup is an event, with those right before it that have the same words.
type eventGroup struct {
	eventRow
	Workspace string     // in which it happened, if the user is a member of it
	Rows      []eventRow // the event and the others
}

// ownEvents reads the latest events before a position that concern the user, in groups, and the position of the others.
func (r *request) ownEvents(from audit.Cursor, most int) (groups []eventGroup, older audit.Cursor) {
	latest := func(ctx context.Context, user uuid.UUID) ([]audit.Entry, error) {
		return r.Store.EventsOfUser(ctx, user, from, most+1)
	}
	found := read(r, latest, r.user.User.ID)
	if len(found) > most {
		found, older = found[:most], found[most-1].Cursor()
	}
	for i, e := range found {
		refused := e.Action == audit.GrantRefused && e.RequestID != ""
		if refused && i+1 < len(found) && found[i+1].RequestID == e.RequestID {
			continue // the request that ended the connection, which is the next event
		}
		row := eventView(e, &r.user.User.ID)
		if row.Who == actors["anonymous"] {
			row.Who = ""
		}
		group := eventGroup{eventRow: row, Rows: []eventRow{row}}
		if e.WorkspaceID != nil {
			own, _ := r.membership(e.WorkspaceID.String())
			group.Workspace = own.Workspace.Name
		}
		if last := len(groups) - 1; last >= 0 && groups[last].sameWords(group) {
			groups[last].Rows = append(groups[last].Rows, row)
			continue
		}
		groups = append(groups, group)
	}
	return groups, older
}

func (g eventGroup) sameWords(other eventGroup) bool {
	return g.What == other.What && g.Who == other.Who && g.Workspace == other.Workspace
}

// An eventsView is Settings → Security → Events.
type eventsView struct {
	page
	Events []eventGroup
	Older  string // path to older events, or ""
	Later  bool   // this is not the first page
}

func (s *Settings) showEvents(r *request) error {
	view, from := &eventsView{}, readMark(r.form.Get("before"))
	var older audit.Cursor
	view.Events, older = r.ownEvents(from, 2*pageSize)
	if older != (audit.Cursor{}) {
		view.Older = r.section.Path() + "?before=" + writeMark(older)
	}
	view.Later = from != audit.Cursor{}
	return r.show("events", view)
}

// showOwnTokens shows the user's active tokens in all workspaces, including those where the user may no longer create
// tokens.
func (s *Settings) showOwnTokens(r *request) error {
	view := &listView[pat.TokenInWorkspace]{}
	tokens := listing[pat.TokenInWorkspace]{Of: "tokens"}
	view.Rows, view.List = tokens.Select(r, read(r, s.Store.ActiveTokens, r.user.User.ID))
	return r.show("owntokens", view)
}

// chooseMails takes mail: the kinds that are not ticked are turned off. The page calls mails notifications.
func (s *Settings) chooseMails(r *request) error {
	ticked := func(k mail.Kind) bool { return slices.Contains(r.form["mail"], string(k)) }
	unwanted := slices.DeleteFunc(mail.OptionalKinds(), ticked)
	event := r.accountEvent(audit.UserMailsChanged, map[string]any{"unwanted": unwanted})
	err := s.Store.SetUnwantedMails(r.ctx(), r.user.User.ID, unwanted, event)
	return r.done(err, "Your choice of e-mails was saved.")
}

// signOut takes id and ends one other sign-in of the user.
func (s *Settings) signOut(r *request) error {
	if r.id() == uuid.Nil {
		return r.done(nil, "The browser is no longer signed in.")
	}
	event := r.event(nil, audit.SignInEnded, "sign_in:"+r.id().String(), nil)
	err := s.Store.EndSignIn(r.ctx(), r.user.User.ID, r.id(), event)
	return r.done(err, "The browser was signed out.")
}

func (s *Settings) signOutOthers(r *request) error {
	event := r.accountEvent(audit.SignInOthersEnded, nil)
	ended, err := s.Store.EndOtherSignIns(r.ctx(), r.user.User.ID, r.user.SignInID, event)
	if ended == 1 {
		return r.done(err, "1 other browser was signed out.")
	}
	return r.done(err, strconv.FormatInt(ended, 10)+" other browsers were signed out.")
}

// A passwordView is Settings → Security → Password. It never has a password.
type passwordView struct {
	page
	HasPassword bool
	Confirm     bool // the user has no password and must authenticate again first
	Fresh       bool // the user may remove the password now
	OtherMethod bool // the user can sign in without the password
	EndOthers   bool
}

// password reads the view of the page and its forms.
func (r *request) password() (*passwordView, error) {
	has, err := r.hasPassword(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	another, err := r.otherMethod()
	return &passwordView{
		OtherMethod: another,
		HasPassword: has,
		EndOthers:   true,
		// The current password in the form is as good as a recent authentication, but no second factor.
		Confirm: r.user.SecondFactor.MustConfirm() || !has && !r.user.Fresh(r.Now()),
		Fresh:   r.user.MayChangeFactors(r.Now()),
	}, err
}

func (s *Settings) showPassword(r *request, view *passwordView) error {
	return r.show("password", view)
}

// otherMethod reports whether the user has a way to sign in besides the password.
func (r *request) otherMethod() (bool, error) {
	if r.Passkeys {
		has, err := r.Store.HasPasskey(r.ctx(), r.user.User.ID)
		if has || err != nil {
			return has, err
		}
	}
	if r.Issuer == "" {
		return false, nil
	}
	_, linked, err := r.Store.IdentitySince(r.ctx(), r.user.User.ID, r.Issuer)
	return linked, err
}

// changePassword takes password, new-password and end-others.
func (s *Settings) changePassword(r *request, view *passwordView) (err error) {
	view.EndOthers = r.form.Get("end-others") != ""
	chosen := credential.Secret(r.form.Get("new-password"))
	if view.HasPassword && r.form.Get("password") == "" {
		r.reject("current password", "Enter your current password.")
	}
	if note := password.CheckForm(chosen); note != "" {
		r.reject("new password", note)
	}
	if r.rejected(passwordKept) || view.Confirm {
		r.status = http.StatusBadRequest
		return s.showPassword(r, view)
	}
	change := password.Change{
		UserID:    r.user.User.ID,
		SignInID:  r.user.SignInID,
		EndOthers: view.EndOthers,
		Device:    r.device(),
		Address:   r.address(),
	}
	if view.HasPassword {
		if change.Current, err = s.currentPassword(r, view); err != nil {
			return err
		}
	}
	caller := session.Caller{Email: r.user.User.Email, Address: s.Proxies.ClientAddress(r.http), Known: true}
	hash, note, err := password.Choose(r.ctx(), s.Passwords, caller, chosen, r.user.User.Name, r.user.User.Email)
	if err != nil {
		return s.refuseBusy(r, view, err)
	}
	if note != "" {
		return s.showPassword(r.refuse(http.StatusBadRequest, passwordKept, problemOf("new password", note)), view)
	}
	change.Hash = hash
	err = s.Store.ChangePassword(r.ctx(), change, r.accountEvent(audit.UserPasswordChanged,
		map[string]any{"address": change.Address, "others_ended": change.EndOthers}))
	if errors.Is(err, session.ErrProofInvalid) {
		wrong := problemOf("current password", wrongPassword)
		return s.showPassword(r.refuse(http.StatusBadRequest, passwordKept, wrong), view)
	}
	r.back = securitySection.Path()
	return r.done(err, "Your password was changed.")
}

// currentPassword checks the current password in the form. It returns errAnswered if it has written the response.
func (s *Settings) currentPassword(r *request, view *passwordView) (session.Proof, error) {
	typed := credential.Secret(r.form.Get("password"))
	user, result, err := s.Passwords.Verify(r.ctx(), r.user.User.Email, typed, s.Proxies.ClientAddress(r.http), true)
	switch {
	case err != nil:
		err = s.refuseBusy(r, view, err)
	case result.Limit.Reset > 0:
		web.SetRateLimited(r.w.Header(), result.Limit.Reset, result.Limit)
		limited := problemOf("current password",
			"Too many wrong passwords from your network. Please try again later.")
		err = s.showPassword(r.refuse(http.StatusTooManyRequests, passwordKept, limited), view)
	case !result.OK || user.ID != r.user.User.ID:
		wrong := problemOf("current password", wrongPassword)
		err = s.showPassword(r.refuse(http.StatusBadRequest, passwordKept, wrong), view)
	default:
		return result.Proof, nil
	}
	return session.Proof{}, cmp.Or(err, errAnswered)
}

// refuseBusy writes the page again if too many passwords are being checked.
func (s *Settings) refuseBusy(r *request, view *passwordView, err error) error {
	if !errors.Is(err, session.ErrBusy) {
		return err
	}
	web.SetRetryAfter(r.w.Header(), session.BusyFor)
	return s.showPassword(r.refuse(http.StatusTooManyRequests, tooManySignIns), view)
}

// removePassword refuses to remove the last sign-in method.
func (s *Settings) removePassword(r *request, view *passwordView) error {
	if !view.Fresh {
		return r.done(nil, confirmFirst)
	}
	removal := password.Removal{
		UserID:   r.user.User.ID,
		Passkeys: s.Passkeys,
		Issuer:   s.Issuer,
		Device:   r.device(),
		Address:  r.address(),
	}
	err := s.Store.RemovePassword(r.ctx(), removal, r.addressEvent(audit.UserPasswordRemoved))
	if errors.Is(err, password.ErrLastSignInMethod) {
		return s.showPassword(r.refuse(http.StatusConflict,
			"You need your password to sign in. Add a passkey before you remove it."), view)
	}
	r.back = securitySection.Path()
	return r.done(err, "Your password was removed. You now sign in without it.")
}

const (
	passwordKept   = "Your password was not changed."
	confirmFirst   = "Nothing was changed. Confirm your identity first."
	wrongPassword  = "The password is incorrect."
	tooManySignIns = "Many people are signing in right now, so your password was not checked. Please try again in a " +
		"few seconds."
)

// addressEvent returns accountEvent with the address of the request.
func (r *request) addressEvent(action audit.Action) audit.Event {
	return r.accountEvent(action, map[string]any{"address": r.address()})
}
