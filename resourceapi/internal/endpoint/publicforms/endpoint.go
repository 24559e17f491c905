// Package publicforms serves forms to the public and accepts submissions, without an account.
//
// The embed key in the path identifies the form; what else is checked, and in which order, is in the contract,
// section 6. All paths are under /v1/engage/public (spec 4.5).
package publicforms

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/page/brand"
	"github.com/almonerhq/almoner/shared/page/pagestyle"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
	"github.com/almonerhq/almoner/resourceapi/internal/gate"
)

// Paths of the public side of Engage, below the base address.
const (
	Root            = "/v1/engage/public"
	FormsPath       = Root + "/forms"
	SubmissionsPath = Root + "/submissions"
)

// perMinute is how many submissions one address may send to one form in any minute.
const perMinute = 120

// Store stores forms and submissions. Its errors are those of the domain, or *apierr.Error.
type Store interface {
	FormByKey(ctx context.Context, embedKey string) (engage.FormState, error)
	Form(ctx context.Context, workspaceID, id uuid.UUID) (engage.Form, error)
	// SubmissionStatus searches all workspaces for the submission if workspaceID is zero.
	SubmissionStatus(ctx context.Context, workspaceID, id uuid.UUID) (engage.Submission, error)
	// FirstAnswer returns the answer stored under the key. The error may be rest.ErrReused.
	FirstAnswer(ctx context.Context, key rest.Key) (answer rest.Answer, known bool, err error)
	// Accept stores a submission, and its answer under the key if one was given, or returns the answer already stored
	// under the key. The error may be rest.ErrReused or engage.ErrTokenUsed.
	Accept(ctx context.Context, key rest.Key, s engage.Submission, answer rest.Answer) (rest.Answer, error)
	// AcceptedBefore returns the id of the submission that used the token of s, if it has the same answers. Otherwise
	// the error is engage.ErrTokenUsed.
	AcceptedBefore(ctx context.Context, s engage.Submission) (uuid.UUID, error)
}

// An Endpoint makes the handlers.
type Endpoint struct {
	BaseURL string // without a trailing slash
	Brand   brand.Brand
	Gate    *gate.Gate // writes and logs refusals
	Store   Store
	Tokens  *engage.Tokens
	Now     func() time.Time
	// Address returns the client's address behind the proxies.
	Address func(*http.Request) netip.Addr
	// Count counts an event. If there were more than most, it returns how long to wait.
	Count func(ctx context.Context, key string, most int) time.Duration
}

// handle turns the error of a handler into JSON.
func (e *Endpoint) handle(serve func(http.ResponseWriter, *http.Request) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := serve(w, r); err != nil {
			e.Gate.Refuse(w, r, refusal(err))
		}
	})
}

// find reads the form of the path's embed key, in any state.
func (e *Endpoint) find(r *http.Request) (engage.FormState, error) {
	embedKey := r.PathValue("embedKey")
	if !credential.EmbedKey.Matches(embedKey) {
		return engage.FormState{}, engage.ErrNotFound
	}
	return e.Store.FormByKey(r.Context(), embedKey)
}

// checkOpen refuses a form that is not open to the public.
func checkOpen(form engage.FormState) error {
	switch {
	case !form.Open():
		return engage.ErrNotFound
	case !form.ModuleProvisioned:
		return apierr.New(apierr.NotProvisioned,
			"Forms are not set up in this workspace yet. Trying again does not help. Contact the owner of the form.")
	}
	return nil
}

// checkRate counts one submission.
func (e *Endpoint) checkRate(r *http.Request, form engage.FormState) error {
	wait := e.Count(r.Context(), "engage:"+form.ID.String()+":"+web.Network(e.Address(r)), perMinute)
	if wait <= 0 {
		return nil
	}
	return &apierr.Error{
		Kind: apierr.RateLimited, RetryAfter: int((wait + time.Second - 1) / time.Second),
		Message: "Too many submissions from your address. Try again after the time in Retry-After.",
	}
}

// Routes returns the handlers of the public side of Engage by path and method.
func (e *Endpoint) Routes() map[string]map[string]http.Handler {
	const form = FormsPath + "/{embedKey}"
	preflight, logo := e.handle(e.servePreflight), e.Brand.Logo()
	return map[string]map[string]http.Handler{
		form:                      {"GET": e.handle(e.serveDefinition), "OPTIONS": preflight},
		form + "/submissions":     {"POST": e.handle(e.submit), "OPTIONS": preflight},
		form + "/embed":           {"GET": e.page(e.servePage), "POST": e.page(e.send)},
		SubmissionsPath + "/{id}": {"GET": e.handle(e.serveStatus)},
		Root + "/embed.js":        {"GET": asset("text/javascript; charset=utf-8", embedJS, "")},
		Root + "/embed.css":       {"GET": asset("text/css; charset=utf-8", []byte(brand.Tokens()+embedCSS), "")},
		Root + "/form.js":         {"GET": asset("text/javascript; charset=utf-8", formJS, "")},
		Root + "/height.js":       {"GET": asset("text/javascript; charset=utf-8", heightJS, "")},
		Root + "/logo":            {"GET": asset(logo.ContentType, logo.Content, logoPolicy)},
	}
}

// refusal maps errors of the domain to API errors; other errors pass unchanged.
func refusal(err error) error {
	if problems, ok := errors.AsType[rest.Problems](err); ok {
		const message = "The form was not sent. error.fields says what to correct."
		return &apierr.Error{Kind: apierr.Invalid, Message: message, Fields: problems}
	}
	if errors.Is(err, engage.ErrNotFound) {
		return apierr.New(apierr.NotFound, "The form does not exist or is closed.")
	}
	return err
}

// allowOrigin lets scripts of an allowed origin read the response (Fetch, CORS protocol), whatever it is, and returns
// the refusal for any other origin. A request without Origin does not come from a script of another site.
func allowOrigin(w http.ResponseWriter, r *http.Request, form engage.Form) error {
	w.Header().Add("Vary", "Origin")
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	if len(origins) > 1 || !form.Allows(origins[0]) {
		return apierr.New(apierr.Forbidden,
			"The form does not allow web pages of this origin. The workspace can add the origin to the form's "+
				"allowed origins.")
	}
	w.Header().Set("Access-Control-Allow-Origin", origins[0])
	w.Header().Set("Access-Control-Expose-Headers", "Retry-After, X-Request-Id, "+rest.ReplayedHeader)
	return nil
}

// openForm reads the open form of the path's embed key, for scripts of an allowed origin.
func (e *Endpoint) openForm(w http.ResponseWriter, r *http.Request) (engage.FormState, error) {
	form, err := e.find(r)
	if err == nil {
		err = checkOpen(form)
	}
	if err == nil {
		err = allowOrigin(w, r, form.Form)
	}
	return form, err
}

// servePreflight handles OPTIONS: what a script of an allowed origin may send.
func (e *Endpoint) servePreflight(w http.ResponseWriter, r *http.Request) error {
	if _, err := e.openForm(w, r); err != nil {
		return err
	}
	w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
	w.Header().Set("Access-Control-Allow-Headers", "Content-Type, Idempotency-Key")
	w.Header().Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// publicForm is a form as the public sees it.
type publicForm struct {
	Title           string         `json:"title"`
	Fields          []engage.Field `json:"fields"`
	SubmissionToken string         `json:"submissionToken"`
}

// serveDefinition handles GET of a form: its fields, and a token for a submission.
func (e *Endpoint) serveDefinition(w http.ResponseWriter, r *http.Request) error {
	form, err := e.openForm(w, r)
	if err != nil {
		return err
	}
	if err := rest.UnknownParameters(r.URL.RawQuery); err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, publicForm{form.Title, form.Fields, e.Tokens.ForSubmission(form.ID, e.Now())})
	return nil
}

// submissionState is the state of a submission, as its sender sees it.
type submissionState struct {
	ID      uuid.UUID     `json:"id"`
	Status  engage.Status `json:"status"`
	Reasons []string      `json:"reasons"`
}

// serveStatus handles GET of a submission for a caller with its token. Other callers do not learn whether it exists.
func (e *Endpoint) serveStatus(w http.ResponseWriter, r *http.Request) error {
	s, err := e.submission(r, r.PathValue("id"))
	if errors.Is(err, engage.ErrNotFound) {
		return apierr.New(apierr.NotFound,
			"The submission does not exist, or its status token is not valid or is older than a day.")
	}
	if err != nil {
		return err
	}
	form, err := e.Store.Form(r.Context(), s.WorkspaceID, s.Form)
	if err != nil {
		return err
	}
	if err := allowOrigin(w, r, form); err != nil {
		return err
	}
	if err := rest.UnknownParameters(r.URL.RawQuery, "token"); err != nil {
		return err
	}
	web.JSON(w, http.StatusOK, submissionState{s.ID, s.Status, s.Reasons})
	return nil
}

// submission returns the submission with the given id if the query's token is for it.
func (e *Endpoint) submission(r *http.Request, text string) (engage.Submission, error) {
	id, err := web.ParseID(text)
	if err != nil {
		return engage.Submission{}, engage.ErrNotFound
	}
	workspaceID, allowed := e.Tokens.ReadStatus(r.URL.Query().Get("token"), id, e.Now())
	if !allowed {
		return engage.Submission{}, engage.ErrNotFound
	}
	return e.Store.SubmissionStatus(r.Context(), workspaceID, id)
}

// maxBody is the largest body of a submission, in bytes.
const maxBody = 64 << 10

// submit handles POST: 202, or an error. A repeated Idempotency-Key is looked up first, so that a sender who lost the
// first answer gets it even if the form has been closed since (contract, section 6). For any other key the answer for
// a closed form is byte-identical to that for an unknown form, whatever the request contains.
func (e *Endpoint) submit(w http.ResponseWriter, r *http.Request) error {
	content, mistake := rest.ReadBody(w, r, maxBody)
	form, err := e.find(r)
	if err != nil {
		return err
	}
	key := rest.Key{}
	if mistake == nil {
		key, mistake = rest.ReadKey(r.Header, keyScope(form), content)
	}
	closed := checkOpen(form)
	first, known, err := e.firstAnswer(r.Context(), key)
	if closed != nil && !known && err == nil {
		return closed
	}
	foreign := allowOrigin(w, r, form.Form)
	if known {
		first.Serve(w)
		return nil
	}
	if err := cmp.Or(err, mistake, foreign, rest.UnknownParameters(r.URL.RawQuery)); err != nil {
		return err
	}
	if err := e.checkRate(r, form); err != nil {
		return err
	}
	submission, err := e.readSubmission(r.Header, content, form.Form)
	if err != nil {
		return err
	}
	answer, err := e.accept(r.Context(), key, submission)
	if err != nil {
		return err
	}
	answer.Serve(w)
	return nil
}

// keyScope is the scope of the Idempotency-Keys of submissions, of scripts and of the page.
func keyScope(form engage.FormState) rest.KeyScope {
	return rest.KeyScope{WorkspaceID: form.WorkspaceID, Route: "submit to " + form.ID.String()}
}

func (e *Endpoint) firstAnswer(ctx context.Context, key rest.Key) (answer rest.Answer, known bool, err error) {
	if !key.Given() {
		return rest.Answer{}, false, nil
	}
	answer, known, err = e.Store.FirstAnswer(ctx, key)
	if known {
		answer.Body, err = e.Tokens.OpenAnswer(answer.Body)
	}
	return answer, known && err == nil, err
}

// readSubmission reads {submissionToken, answers} and checks both.
func (e *Endpoint) readSubmission(h http.Header, content []byte, form engage.Form) (engage.Submission, error) {
	object, err := rest.ParseBody(h, content, "application/json")
	if err != nil {
		return engage.Submission{}, err
	}
	if problems := rest.UnknownMembers(object, "submissionToken", "answers"); len(problems) > 0 {
		return engage.Submission{}, problems
	}
	text, _ := object.Text("submissionToken")
	token, err := e.Tokens.ReadSubmission(text, form.ID, e.Now())
	if err != nil {
		return engage.Submission{}, err
	}
	given, err := rest.ParseObject(object["answers"])
	if err != nil {
		return engage.Submission{}, rest.Problems{
			"answers": "Must be an object: the name of each field, and its answer.",
		}
	}
	return newSubmission(form, token, given)
}

// newSubmission checks the answers to the form. The error is rest.Problems.
func newSubmission(form engage.Form, token engage.SubmissionToken, given rest.Object) (engage.Submission, error) {
	answers, consents, err := form.Read(given, engage.LanguageOf(form.Lang).Problems)
	return engage.Submission{
		ID:          uuid.Must(uuid.NewV7()),
		Form:        form.ID,
		WorkspaceID: form.WorkspaceID,
		Token:       token.ID,
		Answers:     answers,
		Consents:    consents,
	}, err
}

// answerTo returns the answer to an accepted submission, whose statusUrl returns its status (spec 4.5).
func (e *Endpoint) answerTo(s engage.Submission) (rest.Answer, error) {
	token := e.Tokens.ForStatus(s.WorkspaceID, s.ID, e.Now())
	at := e.BaseURL + SubmissionsPath + "/" + s.ID.String() + "?token=" + token
	content, err := web.EncodeJSON(map[string]any{"id": s.ID, "status": engage.Accepted, "statusUrl": at})
	return rest.Answer{Status: http.StatusAccepted, Body: content}, err
}

// acceptedBefore returns the answer to the submission that has the same token and answers.
func (e *Endpoint) acceptedBefore(ctx context.Context, s engage.Submission) (answer rest.Answer, err error) {
	if s.ID, err = e.Store.AcceptedBefore(ctx, s); err == nil {
		answer, err = e.answerTo(s)
	}
	return answer, err
}

// accept stores the submission and returns the answer. An answer that is stored is sealed: it has the token of the
// status.
func (e *Endpoint) accept(ctx context.Context, key rest.Key, s engage.Submission) (rest.Answer, error) {
	answer, err := e.answerTo(s)
	if err != nil {
		return rest.Answer{}, err
	}
	if key.Given() {
		answer.Body = e.Tokens.SealAnswer(answer.Body)
	}
	if answer, err = e.Store.Accept(ctx, key, s, answer); err == nil {
		answer.Body, err = e.Tokens.OpenAnswer(answer.Body)
	}
	return answer, err
}

// readForm reads a body of application/x-www-form-urlencoded, once.
func readForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if r.PostForm != nil {
		return r.PostForm, nil
	}
	if err := rest.CheckType(r.Header, "application/x-www-form-urlencoded"); err != nil {
		return nil, err
	}
	content, err := rest.ReadBody(w, r, maxBody)
	if err != nil {
		return nil, err
	}
	values, err := url.ParseQuery(string(content))
	if err != nil {
		return nil, apierr.New(apierr.Invalid, "The form could not be read.")
	}
	r.PostForm = values
	return values, nil
}

//go:embed assets/embed.js
var embedJS []byte // embeds a form in a website

//go:embed assets/embed.css
var embedCSS string

//go:embed assets/form.js
var formJS []byte // of the page; sends the form

//go:embed assets/height.js
var heightJS []byte // of the page; reports its height and title to the frame around it

// logoPolicy stops scripts if a browser opens the deployment's logo, an SVG, as a page.
const logoPolicy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; sandbox"

// asset serves a public file, with a Content-Security-Policy if it needs one.
func asset(contentType string, content []byte, policy string) http.Handler {
	header := map[string]string{"Content-Type": contentType, "Cross-Origin-Resource-Policy": "cross-origin"}
	if policy != "" {
		header["Content-Security-Policy"] = policy
	}
	return pagestyle.File(content, header)
}
