package settings

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/authserver/internal/store"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
)

// enter makes the workspace with the id the one of the page, or the user's default workspace if id is "". A workspace
// whose page the user opens becomes the default one (contract, section 7). enter writes a 403 and returns errAnswered
// if the user is not a member, lacks the permission of the section, or signed in without a second factor that the
// workspace requires.
func (r *request) enter(id string) error {
	if id == "" && len(r.memberships) > 0 {
		id = r.defaultWorkspace(r.http, r.memberships).String()
	}
	own, member := r.membership(id)
	switch {
	case !member && len(r.memberships) == 0:
		return r.forbid(ui.MessageOf("no member of any", ""))
	case !member: // the page does not tell whether the workspace exists
		return r.forbid(ui.MessageOf("no member", ""))
	case !own.Permissions.Has(r.section.Needs):
		return r.noAccess(own)
	}
	if err := r.visit(own); err != nil {
		return err
	}
	return r.checkSecondFactor()
}

// visit makes a workspace of the user the one of the page and, if the user opens the page, the default one.
func (r *request) visit(own workspace.Membership) error {
	r.here = own
	wanted := own.Workspace.ID
	if r.http.Method == http.MethodGet && wanted != r.Sessions.Workspace(r.ctx()) {
		return r.Sessions.ChooseWorkspace(r.w, r.http, wanted)
	}
	return nil
}

// membership returns the user's membership of the workspace with the id, and false if there is none.
func (r *request) membership(id string) (workspace.Membership, bool) {
	wanted, err := web.ParseID(id)
	at := slices.IndexFunc(r.memberships, func(m workspace.Membership) bool { return m.Workspace.ID == wanted })
	if err != nil || at < 0 {
		return workspace.Membership{}, false
	}
	return r.memberships[at], true
}

// defaultWorkspace returns the workspace of the pages whose URL names none: the one that the user visited
// last, or else the first one whose settings the user may open, or else the first one.
func (s *Settings) defaultWorkspace(r *http.Request, memberships []workspace.Membership) uuid.UUID {
	chosen := s.Sessions.Workspace(r.Context())
	for _, fits := range []func(workspace.Membership) bool{
		func(m workspace.Membership) bool { return m.Workspace.ID == chosen },
		func(m workspace.Membership) bool { return m.Permissions.Has(perm.AccountAPIAccess) },
		func(m workspace.Membership) bool { return m.Permissions.Has(perm.AccountReadMembers) },
		func(workspace.Membership) bool { return true },
	} {
		if at := slices.IndexFunc(memberships, fits); at >= 0 {
			return memberships[at].Workspace.ID
		}
	}
	return uuid.Nil
}

// checkSecondFactor returns errAnswered if the workspace requires a second factor that the sign-in lacks. It then
// writes a page with a link for using or adding one.
func (r *request) checkSecondFactor() error {
	if !r.here.Workspace.SecondFactor || r.user.SecondFactor.Satisfies() {
		return nil
	}
	back := r.path(r.section)
	if r.http.Method == http.MethodGet {
		back = r.http.URL.RequestURI()
	}
	person := &ui.Person{Name: r.user.User.Name, Email: r.user.User.Email}
	r.Pages.SecondFactorNeeded(r.w, r.http, ui.Frame{Person: person}, r.here.Workspace.Name, r.user.SecondFactor.Has,
		back, r.links(r.here.Workspace.ID)...)
	return errAnswered
}

// links returns links to the same page of the workspaces in which the user may open it, except for one.
func (r *request) links(except uuid.UUID) (links []ui.Link) {
	for _, m := range r.memberships {
		if m.Permissions.Has(r.section.Needs) && m.Workspace.ID != except {
			href := r.section.Path() + "?tenant=" + m.Workspace.ID.String()
			links = append(links, ui.Link{Href: href, Text: m.Workspace.Name})
		}
	}
	return links
}

// noAccess writes the page for a workspace in which the user lacks the permission of the section.
func (r *request) noAccess(m workspace.Membership) error {
	needed := perm.NewSet(r.section.Needs)
	ask := r.offer(m, needed, "", userSection.Path())
	if r.failed != nil {
		return r.failed
	}
	r.here = m
	message := ui.MessageOf("without "+string(r.section.Needs), m.Workspace.Name)
	message.List, message.Asks = needed, []ui.Ask{*ask}
	return r.forbid(message)
}

// forbid writes a page in the settings, with links to the same page of the workspaces in which the user may open it.
func (r *request) forbid(message *ui.Message) (err error) {
	if message.Notice, err = r.Sessions.TakeFlash(r.w, r.http); err != nil {
		return err
	}
	r.fill(&message.Frame)
	back := ui.Link{Href: "/settings/user", Text: "Back to your settings"}
	message.Links = append([]ui.Link{back}, r.links(uuid.Nil)...)
	r.Pages.ShowError(r.w, r.http, message)
	return errAnswered
}

// offer returns the button "Ask an administrator" for the permissions that a member lacks. Without permissions, the
// button asks for the LLM integration. application is the name of the application that needs the access, or "". back
// is the local path of the page. Like read, it keeps the first error for show.
func (r *request) offer(m workspace.Membership, missing perm.Set, application, back string) *ui.Ask {
	if r.failed != nil {
		return nil
	}
	offer, err := r.Offers.Offer(r.ctx(), membership.AccessRequest{
		SignInID:       r.user.SignInID,
		UserID:         r.user.User.ID,
		WorkspaceID:    m.Workspace.ID,
		Permissions:    missing,
		LLMIntegration: len(missing) == 0,
		Application:    application,
		Back:           []byte(back),
		Issued:         r.Now(),
	}, m.Permissions)
	r.failed = err
	out := &ui.Ask{Workspace: m.Workspace.Name, Ticket: offer.Ticket, None: offer.None}
	for _, one := range offer.People {
		out.People = append(out.People, ui.Person{Name: one.Name, Email: one.Email})
	}
	return out
}

// refuseWithout refuses what needs the permission to change members, with the button that asks for it.
func (r *request) refuseWithout(act string) *request {
	needed := perm.NewSet(perm.AccountWriteMembers)
	r.ask = r.offer(r.here, needed, "", r.path(r.section))
	return r.refuse(http.StatusForbidden, "To "+act+", you need the permission “"+titles(needed)[0]+
		"”. An administrator of the workspace can give it to you. Nothing was changed.")
}

// Place returns the workspace in the navigation of a page of another package that belongs to a section of the user.
func (s *Settings) Place(r *http.Request, user session.CurrentUser) (*ui.Place, error) {
	memberships, err := s.Store.Memberships(r.Context(), user.User.ID)
	if err != nil {
		return nil, err
	}
	return workspaceMenu(userSection, memberships, s.defaultWorkspace(r, memberships)), nil
}

// workspaceMenu returns the workspace of the navigation, or nil if the user may open no page of any workspace. Each
// other workspace has a link to the same section, or to the first one that the user may open there. Organisations are
// named only where workspaces have equal names.
func workspaceMenu(open ui.Section, memberships []workspace.Membership, here uuid.UUID) (place *ui.Place) {
	same := map[string]int{} // number of workspaces by name
	for _, m := range memberships {
		same[m.Workspace.Name]++
	}
	place = &ui.Place{}
	for _, m := range memberships {
		name := m.Workspace.Name
		if same[name] > 1 {
			name += " (" + m.Workspace.Organisation + ")"
		}
		first := firstSection(open, m.Permissions)
		switch {
		case m.Workspace.ID == here:
			place.ID, place.Name, place.Held, place.Opens = here.String(), name, m.Permissions, first != nil
		case first != nil:
			href := first.Path() + "?tenant=" + m.Workspace.ID.String()
			place.Others = append(place.Others, ui.Link{Href: href, Text: name})
		}
	}
	if len(place.Others) == 0 && !place.Opens {
		return nil
	}
	return place
}

// firstSection returns the open section if it is of a workspace and the permissions suffice for it, or else the first
// such section of the navigation, or nil.
func firstSection(open ui.Section, held perm.Set) *ui.Section {
	for _, section := range append([]ui.Section{open}, Sections()...) {
		if section.Needs != "" && held.Has(section.Needs) {
			return &section
		}
	}
	return nil
}

// A reauthMethod is how the user must authenticate before a credential is created.
type reauthMethod string

const (
	noReauth    reauthMethod = ""          // the user authenticated recently
	byPassword  reauthMethod = "password"  // the form asks for the password
	onOtherPage reauthMethod = "elsewhere" // the password alone is not enough, or there is none
)

// A reauthField is the password field of a form, or the link to reauthentication, if the user must authenticate.
type reauthField struct {
	*page
	ID string // of the form
}

// ReauthField returns the field of the form with this id.
func (p *page) ReauthField(id string) reauthField { return reauthField{p, id} }

// reauthMethod returns how the user must authenticate before a credential is created.
func (r *request) reauthMethod() (reauthMethod, error) {
	if r.user.Fresh(r.Now()) {
		return noReauth, nil
	}
	app, err := r.Store.Authenticator(r.ctx(), r.user.User.ID)
	if err != nil {
		return noReauth, err
	}
	_, hash, _, err := r.Store.UserByID(r.ctx(), r.user.User.ID)
	if hash == "" || app.Active {
		return onOtherPage, err
	}
	return byPassword, err
}

// confirm makes sure that no field of a form was rejected and that the user authenticated recently, with the password
// in the form if need be. If not, it shows the page again, which says what was not done, and returns errAnswered.
func (s *Settings) confirm(r *request, form, undone string, again handler) error {
	err := s.reauthenticate(r, form)
	if err == nil && r.rejected(undone) {
		return cmp.Or(again(r), errAnswered)
	}
	return err
}

// reauthenticate authenticates the user by password, unless a recent authentication exists, or rejects the password
// field of the form with this id. If another field was rejected, it only checks whether a password was entered: the
// page then shows all errors at once.
func (s *Settings) reauthenticate(r *request, form string) error {
	valid := len(r.problems) == 0
	reject := func(status int, text string) error {
		problem := problemOf("your password", text)
		problem.Field += "-" + form // a page can have several such forms
		problem.At = problem.Field
		r.status, r.problems = status, append(r.problems, problem)
		return nil
	}
	method, err := r.reauthMethod()
	password := credential.Secret(r.form.Get("password"))
	switch {
	case err != nil || method == noReauth:
		return err
	case method == onOtherPage:
		return reject(http.StatusBadRequest, "Confirm your identity first.")
	case password == "":
		return reject(http.StatusBadRequest, "Enter your password to continue.")
	case !valid:
		return nil
	}
	_, result, err := s.Passwords.Verify(r.ctx(), r.user.User.Email, password, s.Proxies.ClientAddress(r.http), true)
	switch {
	case errors.Is(err, session.ErrBusy):
		web.SetRetryAfter(r.w.Header(), session.BusyFor)
		return reject(http.StatusTooManyRequests, tooManySignIns)
	case err != nil:
		return err
	case result.Limit.Reset > 0:
		web.SetRateLimited(r.w.Header(), result.Limit.Reset, result.Limit)
		return reject(http.StatusTooManyRequests, "Too many wrong passwords. Please try again later.")
	case !result.OK:
		return reject(http.StatusBadRequest, wrongPassword)
	}
	err = s.Sessions.Reauthenticated(r.w, r.http, r.user, result.Proof, s.Proxies.ClientAddress(r.http))
	switch {
	case errors.Is(err, session.ErrProofInvalid):
		return reject(http.StatusBadRequest, wrongPassword)
	case errors.Is(err, session.ErrCodeNeeded): // an app was set up meanwhile
		return reject(http.StatusBadRequest, "Confirm your identity first.")
	case err == nil:
		r.user.AuthenticatedAt = s.Now()
	}
	return err
}

// errAnswered is the error of a request whose response was already written.
var errAnswered = errors.New("answered")

// errorFrame returns the frame of an error page. It reads no store. It is empty for a user who is not signed in.
func (r *request) errorFrame() (frame ui.Frame) {
	if r.user.User.ID != uuid.Nil {
		r.section = ui.Section{Name: sectionAt(r.http)}
		r.fill(&frame)
	}
	return frame
}

// sectionAt returns the name of the section that a request is about.
func sectionAt(r *http.Request) string {
	below, found := strings.CutPrefix(r.URL.Path, "/settings/")
	if !found {
		return "error" // none is open
	}
	section, _, _ := strings.Cut(below, "/")
	return section
}

// Unavailable responds with 503 to a request whose session cannot be read. If the browser sent a session cookie, the
// page has the navigation of the settings, without the user's name and the links that need a permission.
func Unavailable(pages *ui.Pages, sessions *session.Sessions, w http.ResponseWriter, r *http.Request) {
	frame := ui.Frame{}
	if strings.HasPrefix(r.URL.Path, "/settings/") && sessions.Sent(r) {
		frame.Section = sectionAt(r)
	}
	pages.Unavailable(w, r, frame)
}

// NotFound serves the pages that do not exist. A signed-in user sees them with the navigation.
func (s *Settings) NotFound() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		current, signedIn, err := s.Sessions.CurrentUser(r.Context())
		lost := &request{Settings: s, w: w, http: r, user: current}
		if err == nil && signedIn {
			lost.memberships, err = s.Store.Memberships(r.Context(), current.User.ID)
		}
		if err != nil {
			lost.finish(err)
		} else {
			lost.showError(ui.MessageOf("page not found", ""))
		}
	})
}

// finish writes the response for other errors.
func (r *request) finish(err error) {
	if err == nil || errors.Is(err, errAnswered) {
		return
	}
	switch {
	case errors.Is(err, audit.ErrNotAuthorized):
		r.showError(ui.MessageOf("not authorized", ""))
		return
	case errors.Is(err, session.ErrSecondFactor):
		r.showError(ui.MessageOf("second factor not used", ""))
		return
	case errors.Is(err, audit.ErrBusy):
		web.SetRetryAfter(r.w.Header(), turnWait)
		r.showError(ui.MessageOf("too many searches", ""))
		return
	}
	r.Log.ErrorContext(r.ctx(), "settings request failed", "error", err)
	switch {
	case !errors.Is(err, store.ErrUnavailable):
		r.showError(ui.MessageOf("internal", ""))
	case r.partly != "":
		message := ui.MessageOf("unavailable", "", ui.Link{Href: r.path(r.section), Text: "Open the page again"})
		message.Text = r.partly
		web.SetRetryAfter(r.w.Header(), turnWait)
		r.showError(message)
	case r.user.User.ID == uuid.Nil:
		Unavailable(r.Pages, r.Sessions, r.w, r.http)
	default:
		r.Pages.Unavailable(r.w, r.http, r.errorFrame())
	}
}

// showError writes an error page with the navigation of the settings.
func (r *request) showError(m *ui.Message) {
	m.Frame = r.errorFrame()
	r.Pages.ShowError(r.w, r.http, m)
}
