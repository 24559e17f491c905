package settings

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/authserver/internal/account/audit"
	"github.com/almonerhq/almoner/authserver/internal/account/membership"
	"github.com/almonerhq/almoner/authserver/internal/account/pat"
	"github.com/almonerhq/almoner/authserver/internal/account/workspace"
	"github.com/almonerhq/almoner/authserver/internal/endpoint/ui"
	"github.com/almonerhq/almoner/authserver/internal/oauth/client"
	"github.com/almonerhq/almoner/authserver/internal/oauth/consent"
	"github.com/almonerhq/almoner/authserver/internal/signin/authenticator"
	"github.com/almonerhq/almoner/authserver/internal/signin/session"
	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/contract/webhook"
	"github.com/almonerhq/almoner/shared/net/web"
)

// A request is one request of a signed-in user, with the problem that the page in the response shows first.
type request struct {
	*Settings
	w       http.ResponseWriter
	http    *http.Request
	user    session.CurrentUser
	section ui.Section // of the page, or of the page that the form is on
	form    url.Values // of a POST, a copy; the query of a GET
	key     formKey    // of a POST: the key of the page that the form was on

	memberships []workspace.Membership // of the user; nil until they are read
	here        workspace.Membership   // of the page's workspace; empty if it has none, or it is not known yet
	failed      error                  // the first error of read, which show returns

	back     string      // local path to which a form that is done leads; "" for the page of the section
	status   int         // of the page; 0 is 200
	problem  string      // why the form was refused, or ""
	problems ui.Problems // the fields that the problem is about, if any
	ask      *ui.Ask     // the button of a problem that an administrator can solve
	outcome  *outcome    // what the form did, if the page shows it
	partly   string      // what the form did before a store failed, for the error page

	sent []membership.Sent // invitations whose links the page shows
}

// A handler serves a page or a form: it shows a page, or redirects to one.
type handler func(*request) error

// A view is the content of a page. It embeds page.
type view interface {
	ui.View
	head() *page
}

// page is what every page has. show fills it in, except for Form and a title that is not the section's.
type page struct {
	ui.Frame
	workspace.Membership              // of the user in the page's workspace; empty if the page has none
	Key                  string       // proves that a form came from this page
	User                 uuid.UUID    // the signed-in user
	BaseURL              string       // of the API
	SendsMail            bool         // the deployment sends mail
	Form                 url.Values   // what the fields of the form contain
	Reauth               reauthMethod // of the pages for developers
	Outcome              *outcome
}

func (p *page) head() *page { return p }

// Writes reports whether the user may change the members of the workspace.
func (p *page) Writes() bool { return p.Permissions.Has(perm.AccountWriteMembers) }

// Chosen returns the permissions that are ticked in the form.
func (p *page) Chosen() perm.Set { return perm.FromStrings(p.Form["permissions"]) }

// Ticked reports whether a value of a field is ticked in the form.
func (p *page) Ticked(field, value string) bool { return slices.Contains(p.Form[field], value) }

// typed returns the fields of the form as they were sent, if it was refused, and otherwise those of a new form. A link
// cannot fill them in.
func (r *request) typed(fresh url.Values) url.Values {
	if r.http.Method == http.MethodPost && r.status != 0 {
		return r.form
	}
	return fresh
}

// handle serves a page, or a form from the server's own origin. It checks, in this order, the size of a form, the
// sign-in and the key of a form. It redirects a user who is not signed in to the sign-in page, which redirects back.
func (s *Settings) handle(section ui.Section, serve handler) http.Handler {
	return s.Pages.SameOrigin(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		isForm, back, unsent := r.Method == http.MethodPost, r.URL.RequestURI(), ""
		sent := &request{Settings: s, w: w, http: r, section: section, form: r.URL.Query()}
		if isForm {
			back, unsent = section.Path(), "&"+ui.Unsent+"=1"
			if !s.Pages.ParseForm(w, r, func() { s.Pages.ShowError(w, r, outdated(back)) }) {
				return
			}
			sent.form = maps.Clone(r.PostForm) // a 503 repeats what was sent, not what the page makes of it
			if workspaceID, err := web.ParseID(sent.form.Get("tenant")); err == nil {
				back += "?tenant=" + workspaceID.String()
			}
		}
		var signedIn bool
		var err error
		sent.user, signedIn, err = s.Sessions.CurrentUser(r.Context())
		switch {
		case err != nil:
			sent.finish(err)
		case !signedIn:
			ui.Redirect(w, "/login?return="+url.QueryEscape(back)+unsent)
		case isForm && !sent.openKey():
			sent.showError(outdated(back))
		default:
			sent.finish(sent.serve(serve))
		}
	}))
}

// serve reads the user's memberships and calls handle. If the page needs a permission in a workspace, serve selects
// that workspace first.
func (r *request) serve(handle handler) (err error) {
	if r.memberships, err = r.Store.Memberships(r.ctx(), r.user.User.ID); err != nil {
		return err
	}
	if r.section.Needs != "" {
		if err := r.enter(r.form.Get("tenant")); err != nil {
			return err
		}
	}
	return handle(r)
}

// read returns what from returns for id. After an error, further calls read nothing, and show returns the error.
func read[T any](r *request, from func(context.Context, uuid.UUID) (T, error), id uuid.UUID) (found T) {
	if r.failed == nil {
		found, r.failed = from(r.ctx(), id)
	}
	return found
}

// with returns the handler of a page or a form that gets what load reads for it. If load returns one of refusals, the
// handler redirects to the page of the section.
func with[T any](load func(*request) (T, error), handle func(*request, T) error) handler {
	return func(r *request) error {
		loaded, err := load(r)
		if err != nil {
			return r.done(err, "")
		}
		return handle(r, loaded)
	}
}

func outdated(page string) *ui.Message {
	return ui.MessageOf("form out of date", "", ui.Link{Href: page, Text: "Open the page again"})
}

// A formKey binds a form to the sign-in that it was shown to, and names what the form creates: the same form sent twice
// creates one thing.
type formKey struct {
	SignIn uuid.UUID `json:"s"`
	Makes  uuid.UUID `json:"m"`
}

// newKey returns the key of the forms on a page.
func (s *Settings) newKey(user session.CurrentUser) string {
	key := formKey{SignIn: user.SignInID, Makes: uuid.Must(uuid.NewV7())}
	content, _ := json.Marshal(key) // two UUIDs always marshal
	return s.box.Seal(content)
}

// openKey reads the key of the form, and reports whether it was made for this sign-in.
func (r *request) openKey() bool {
	content, err := r.box.Open(r.form.Get("key"))
	if err != nil || json.Unmarshal(content, &r.key) != nil {
		return false
	}
	return r.key.SignIn == r.user.SignInID
}

// show writes the page of a template, with the flash message for it, and the problem or the outcome of the form.
func (r *request) show(template string, v view) (err error) {
	if r.failed != nil {
		return r.failed
	}
	head := v.head()
	head.Template, head.Title = template, cmp.Or(head.Title, r.section.Title)
	if r.section == developersSection || r.section.Parent == developersSection.Name {
		if head.Reauth, err = r.reauthMethod(); err != nil {
			return err
		}
	}
	if head.Notice, err = r.Sessions.TakeFlash(r.w, r.http); err != nil {
		return err
	}
	r.fill(&head.Frame)
	head.Key, head.User, head.BaseURL, head.Outcome = r.newKey(r.user), r.user.User.ID, r.BaseURL, r.outcome
	head.SendsMail = r.Members.Mailed()
	if r.here.Workspace.ID != uuid.Nil {
		head.Membership = r.here
	}
	head.Problem, head.Problems, head.ProblemAsk = r.problem, r.problems, r.ask
	r.Pages.Show(r.w, r.http, cmp.Or(r.status, http.StatusOK), v)
	return nil
}

// fill fills in the frame of a page. It reads no store: the navigation has a workspace if the request has read those of
// the user.
func (r *request) fill(frame *ui.Frame) {
	frame.Section, frame.Parent = r.section.Name, r.section.Parent
	if r.section.Parent == "" { // a page that the navigation does not know belongs to the section before the slash
		frame.Section, _, _ = strings.Cut(r.section.Name, "/")
	}
	frame.Script = true
	frame.Person = &ui.Person{Name: r.user.User.Name, Email: r.user.User.Email}
	here := r.here.Workspace.ID
	if here == uuid.Nil {
		here = r.defaultWorkspace(r.http, r.memberships)
	}
	frame.Place = workspaceMenu(r.section, r.memberships, here)
}

// refuse makes the next page say that the form was refused, and why. It returns the request.
func (r *request) refuse(status int, what string, problems ...ui.Problem) *request {
	r.status, r.problem, r.problems = status, what, problems
	return r
}

// reject adds the error of a field.
func (r *request) reject(field, text string) {
	r.status = cmp.Or(r.status, http.StatusBadRequest)
	r.problems = append(r.problems, problemOf(field, text))
}

//go:embed fields.json
var fieldsJSON []byte

// fields returns the fields of the forms by name. A field that offers a choice also has the text of its error.
var fields = ui.Words[ui.Problem]("fields.json", fieldsJSON)

// problemOf returns the error of a field of fields.json. Its text is text, unless the file has one.
func problemOf(field, text string) ui.Problem {
	problem := fields()[field]
	problem.Field, problem.Text = cmp.Or(problem.Field, field), cmp.Or(problem.Text, text)
	return problem
}

// rejected reports whether a field has an error. The next page then says what was not done.
func (r *request) rejected(what string) bool {
	if len(r.problems) > 0 {
		r.problem = what
	}
	return len(r.problems) > 0
}

// withOutcome makes the next page show what the form did. It returns the request.
func (r *request) withOutcome(did outcome) *request {
	r.outcome = &did
	return r
}

// refusals are the errors of acts that users are told about, in words.
var refusals = map[error]string{
	authenticator.ErrExists:    "An app is set up already.",
	membership.ErrNoInvitation: "The invitation was already answered or withdrawn.",
	membership.ErrAnswered:     "This request was already answered.",
	membership.ErrNoMember:     "This person is no longer a member.",
	client.ErrUnknown:          "The application is no longer registered.",
	pat.ErrNoToken:             "The token is no longer active.",
	consent.ErrNoConnection:    notConnected,
	consent.ErrConnectionEnded: notConnected,
	webhook.ErrNotFound:        "The endpoint no longer exists.",
	webhook.ErrDisabled:        "Nothing was sent, because the endpoint is disabled. Enable it first.",
	webhook.ErrTests: "Nothing was sent, because 60 test events were sent within an hour. Please try again " +
		"later.",
	webhook.ErrWaiting: "Nothing was sent, because 10 requested deliveries are still waiting. Please try again " +
		"in a minute.",
}

// done redirects to a page, which shows notice, or words for the error of the act.
func (r *request) done(err error, notice string) error {
	for refusal, words := range refusals {
		if errors.Is(err, refusal) {
			err, notice = nil, words
		}
	}
	if err == nil {
		err = r.Sessions.Flash(r.w, r.http, notice)
	}
	if err == nil {
		ui.Redirect(r.w, cmp.Or(r.back, r.path(r.section)))
	}
	return err
}

// path returns the path of a section in the workspace of the page, if it has one.
func (r *request) path(section ui.Section) string {
	if r.here.Workspace.ID == uuid.Nil {
		return section.Path()
	}
	return section.Path() + "?tenant=" + r.here.Workspace.ID.String()
}

// event returns an audit event of the user's action in a workspace, or in no workspace.
func (r *request) event(in *uuid.UUID, action audit.Action, subject string, detail map[string]any) audit.Event {
	event := r.user.Event(r.ctx(), action, subject)
	event.WorkspaceID, event.Detail = in, detail
	return event
}

// accountEvent returns an audit event about the user's own account.
func (r *request) accountEvent(action audit.Action, detail map[string]any) audit.Event {
	return r.event(nil, action, r.user.Actor(), detail)
}

// eventHere returns an audit event in the workspace of the page, with authorization that requires the permission of the
// page and the permissions in more.
func (r *request) eventHere(
	action audit.Action, subject string, detail map[string]any, more ...perm.Permission,
) audit.Event {
	return r.actor().Event(action, subject, detail, perm.NewSet(more...))
}

func (r *request) ctx() context.Context { return r.http.Context() }

// query returns the query of the URL, also of a POST.
func (r *request) query() url.Values { return r.http.URL.Query() }

// id returns the identifier in the form or the query; uuid.Nil, which nothing has, if there is none.
func (r *request) id() uuid.UUID {
	id, _ := web.ParseID(r.form.Get("id"))
	return id
}

// device and address return where the request comes from, as audit events and mails name it.
func (r *request) device() string { return session.DeviceName(r.http.UserAgent()) }

func (r *request) address() string { return r.Proxies.ClientAddress(r.http).String() }

// An outcome is what a form for developers did. The page shows it only once, with the credential that the form created.
type outcome struct {
	What     string    // chooses the words in part_developers.html
	ID       uuid.UUID // of the token or application, if it created one, which comes first in its list
	Name     string
	Value    string // "" if it cannot be shown, or not again
	Client   string // client id of the value, or ""
	Consent  string // where a new application with a secret sends people, or ""
	Resource string // of a new connector, or ""
}

// created reports whether the form created what has this id.
func (r *request) created(id uuid.UUID) bool { return r.outcome != nil && r.outcome.ID == id }
