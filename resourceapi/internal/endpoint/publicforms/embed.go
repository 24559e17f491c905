package publicforms

import (
	_ "embed"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/page/pagestyle"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

// minFillTime is the shortest plausible time to fill in the page, with the browser's help.
const minFillTime = 2 * time.Second

// servePage handles GET: the form as a page or, once it was sent, the status of the submission.
func (e *Endpoint) servePage(w http.ResponseWriter, r *http.Request, form engage.FormState) error {
	if err := allowOrigin(w, r, form.Form); err != nil {
		return err
	}
	view := viewOf(form.Form, styleOf(r))
	if sent := r.URL.Query().Get("submission"); sent != "" {
		s, err := e.submission(r, sent)
		if err != nil || s.Form != form.ID {
			return errors.Join(engage.ErrNotFound, err)
		}
		view.Sent = string(s.Status)
		for _, reason := range s.Reasons {
			view.Reasons = append(view.Reasons, view.Words.Reason(reason))
		}
		return e.render(w, http.StatusOK, form.AllowedOrigins, view)
	}
	view.Token = e.Tokens.ForSubmission(form.ID, e.Now())
	return e.render(w, http.StatusOK, form.AllowedOrigins, view)
}

// send handles POST of the page's own form, which needs no script. Invalid answers are shown again with the problem
// beside each; valid ones redirect to the status page, which can be reloaded without another submission.
func (e *Endpoint) send(w http.ResponseWriter, r *http.Request, form engage.FormState) error {
	if r.Header.Get("Origin") != e.BaseURL { // not the page's own origin, so another site's form
		if err := allowOrigin(w, r, form.Form); err != nil {
			return err
		}
	}
	if err := e.checkRate(r, form); err != nil {
		return err
	}
	values, err := readForm(w, r)
	if err != nil {
		return err
	}
	style := styleOf(r)
	form.Lang = style.language(form.Lang).Name // of the messages
	view := viewOf(form.Form, style)
	view.Token = values.Get("submissionToken")
	given := view.fill(form.Fields, values)
	token, err := e.Tokens.ReadSubmission(view.Token, form.ID, e.Now())
	if err != nil {
		view.Token = e.Tokens.ForSubmission(form.ID, e.Now())
		view.Alert = view.Words.TooOld
		return e.render(w, http.StatusBadRequest, form.AllowedOrigins, view)
	}
	submission, err := newSubmission(form.Form, token, given)
	if problems, bad := errors.AsType[rest.Problems](err); bad {
		view.mark(problems)
		return e.render(w, http.StatusBadRequest, form.AllowedOrigins, view)
	}
	if e.Now().Sub(token.IssuedAt) < minFillTime {
		view.Alert = view.Words.TooQuick
		return e.render(w, http.StatusBadRequest, form.AllowedOrigins, view)
	}
	unnamed := rest.Key{KeyScope: rest.KeyScope{WorkspaceID: form.WorkspaceID}}
	submission.Trapped = values.Get(trap) != ""
	if _, err := e.accept(r.Context(), unnamed, submission); err != nil {
		return err
	}
	query := view.pageStyle.query()
	query.Set("submission", submission.ID.String())
	query.Set("token", e.Tokens.ForStatus(form.WorkspaceID, submission.ID, e.Now()))
	w.Header().Set("Location", FormsPath+"/"+form.EmbedKey+"/embed?"+query.Encode())
	w.WriteHeader(http.StatusSeeOther)
	return nil
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

// policy returns the page's Content-Security-Policy. It allows no external resources, only the inline style with the
// given hash, and only the given origins to frame the page.
func policy(origins []string, styleHash string) string {
	ancestors := "'none'"
	if len(origins) > 0 {
		ancestors = strings.Join(origins, " ")
	}
	styles := "'self'"
	if styleHash != "" {
		styles += " " + styleHash
	}
	return "default-src 'none'; style-src " + styles + "; script-src 'self'; connect-src 'self'; " +
		"img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors " + ancestors
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
