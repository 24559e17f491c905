package settings

import (
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/mail"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
)

// A securityView is Settings → Security: the user's sign-ins, personal access tokens of every workspace, and recent
// events.
type securityView struct {
	page
	SignIns  []signInRow
	Browsers listPage // of the sign-ins
	Tokens   []ui.Token
	List     listPage // of the tokens
	Events   []ui.Event
	HasApp   bool         // the user has an authenticator app
	Mails    []mailChoice // empty if the deployment sends no mail
}

func (*securityView) Template() string { return "security" }

// A signInRow is one signed-in browser.
type signInRow struct {
	ID       string
	Device   string
	Address  string
	Since    time.Time
	LastSeen time.Time
	This     bool
}

// A mailChoice is a kind of mail that the user can turn off.
type mailChoice struct {
	Kind   mail.Kind
	Title  string
	Wanted bool
}

const recentEvents = 30

func (s *Settings) showSecurity(r *request) error {
	view, err := s.security(r)
	if err != nil {
		return err
	}
	view.SignIns, view.Browsers = listing[signInRow]{
		Of:        "browsers",
		Path:      r.section.Path(),
		Parameter: "browsers",
		First:     func(s signInRow) bool { return s.This },
	}.Select(r.query(), view.SignIns)
	tokens := listing[ui.Token]{Of: "tokens", Path: r.section.Path(), Parameter: "tokens"}
	view.Tokens, view.List = tokens.Select(r.query(), view.Tokens)
	if err := r.offerPasskey(&view.Frame); err != nil {
		return err
	}
	return r.show(view)
}

// security returns the page with all sign-ins and tokens.
func (s *Settings) security(r *request) (*securityView, error) {
	view, user := &securityView{}, r.user.User.ID
	signIns, err := s.Store.SignInsOf(r.ctx(), user)
	if err != nil {
		return nil, err
	}
	for _, one := range signIns {
		view.SignIns = append(view.SignIns, signInRow{
			ID:       one.ID.String(),
			Device:   session.DeviceName(one.UserAgent),
			Address:  one.Address,
			Since:    one.Created,
			LastSeen: one.LastSeen,
			This:     one.ID == r.user.SignInID,
		})
	}
	tokens, err := s.Store.ActiveTokens(r.ctx(), user)
	if err != nil {
		return nil, err
	}
	for _, t := range tokens {
		row := tokenRow(t.Token)
		row.Workspace = t.Workspace
		view.Tokens = append(view.Tokens, row)
	}
	events, err := s.Store.EventsOfUser(r.ctx(), user, recentEvents)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		view.Events = append(view.Events, eventView(e, &user))
	}
	if view.Mails, err = s.mailChoices(r); err != nil {
		return nil, err
	}
	app, err := s.Store.Authenticator(r.ctx(), user)
	view.HasApp = app.Active
	return view, err
}

// mailChoices returns the choices of the user, or none if the deployment sends no mail.
func (s *Settings) mailChoices(r *request) (choices []mailChoice, err error) {
	if !s.Mails {
		return nil, nil
	}
	unwanted, err := s.Store.UnwantedMails(r.ctx(), r.user.User.ID)
	if err != nil {
		return nil, err
	}
	for _, k := range mail.OptionalKinds() {
		choices = append(choices, mailChoice{k.Kind, k.Title, !slices.Contains(unwanted, k.Kind)})
	}
	return choices, nil
}

// chooseMails takes mail: the kinds that are not ticked are turned off.
func (s *Settings) chooseMails(r *request) error {
	unwanted := []mail.Kind{}
	for _, k := range mail.OptionalKinds() {
		if !slices.Contains(r.form["mail"], string(k.Kind)) {
			unwanted = append(unwanted, k.Kind)
		}
	}
	event := r.accountEvent(audit.UserMailsChanged, map[string]any{"unwanted": unwanted})
	err := s.Store.SetUnwantedMails(r.ctx(), r.user.User.ID, unwanted, event)
	return r.outcome(err, "Your choice of mails was saved.", nil)
}

// signOut takes id and ends one other sign-in of the user.
func (s *Settings) signOut(r *request) error {
	if r.id() == uuid.Nil {
		return r.done("The browser is no longer signed in.")
	}
	event := r.event(nil, audit.SignInEnded, "sign_in:"+r.id().String(), nil)
	err := s.Store.EndSignIn(r.ctx(), r.user.User.ID, r.id(), event)
	return r.outcome(err, "The browser was signed out.", nil)
}

func (s *Settings) signOutOthers(r *request) error {
	event := r.accountEvent(audit.SignInOthersEnded, nil)
	ended, err := s.Store.EndOtherSignIns(r.ctx(), r.user.User.ID, r.user.SignInID, event)
	if ended == 1 {
		return r.outcome(err, "1 other browser was signed out.", nil)
	}
	return r.outcome(err, strconv.FormatInt(ended, 10)+" other browsers were signed out.", nil)
}

// revokeAnyToken takes id and revokes a token of the user in any workspace, including those where the user may no
// longer create tokens.
func (s *Settings) revokeAnyToken(r *request) error {
	tokens, err := s.Store.ActiveTokens(r.ctx(), r.user.User.ID)
	if err != nil {
		return err
	}
	for _, t := range tokens {
		if t.ID == r.id() {
			return s.revoke(r, t.Token)
		}
	}
	return r.done("The token is no longer active.")
}
