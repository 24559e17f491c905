package publicforms

import (
	"cmp"
	"context"
	"net/http"

	"github.com/almonerhq/almoner/shared/contract/identity"
	"github.com/almonerhq/almoner/shared/net/web"
	"github.com/almonerhq/almoner/shared/rest"

	"github.com/almonerhq/almoner/resourceapi/internal/engage"
)

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
		scope := rest.KeyScope{WorkspaceID: form.WorkspaceID, Route: "submit to " + form.ID.String()}
		key, mistake = rest.ReadKey(r.Header, scope, content)
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
		ID:          identity.New(),
		Form:        form.ID,
		WorkspaceID: form.WorkspaceID,
		Token:       token.ID,
		Answers:     answers,
		Consents:    consents,
	}, err
}

// accept stores the submission with its job and builds the answer, whose statusUrl returns its status (spec 4.5). The
// answer is stored sealed: it has the token of the status.
func (e *Endpoint) accept(ctx context.Context, key rest.Key, s engage.Submission) (rest.Answer, error) {
	answer, err := e.Store.Once(ctx, key, func(ctx context.Context, writer engage.Writer) (rest.Answer, error) {
		if err := writer.Accept(ctx, s); err != nil {
			return rest.Answer{}, err
		}
		token := e.Tokens.ForStatus(s.WorkspaceID, s.ID, e.Now())
		at := e.BaseURL + SubmissionsPath + "/" + s.ID.String() + "?token=" + token
		content, err := web.EncodeJSON(map[string]any{"id": s.ID, "status": engage.Accepted, "statusUrl": at})
		return rest.Answer{Status: http.StatusAccepted, Body: e.Tokens.SealAnswer(content)}, err
	})
	if err != nil {
		return rest.Answer{}, err
	}
	answer.Body, err = e.Tokens.OpenAnswer(answer.Body)
	return answer, err
}
