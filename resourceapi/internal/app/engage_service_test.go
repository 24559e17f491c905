package app

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

const (
	formsPath   = "/v1/engage/forms"
	publicPath  = "/v1/engage/public"
	goodOrigin  = "https://www.harbour-trust.example"
	otherOrigin = "https://elsewhere.example"
)

// workspace creates a workspace and returns the headers of a member with every permission of Engage.
func (s *service) workspace() (uuid.UUID, header) {
	s.t.Helper()
	held := []perm.Permission{
		perm.EngageReadForms, perm.EngageWriteForms, perm.EngageReadSubmissions, perm.EngageWriteSubmissions,
	}
	workspaceID, user := s.member(held...)
	return workspaceID, as(s.PAT(workspaceID, user, held...).Reveal(), workspaceID).json()
}

// form creates a workspace, and returns the headers of workspace and a form with fields of all types.
func (s *service) form() (header, formRecord) {
	s.t.Helper()
	_, h := s.workspace()
	return h, s.makeForm(h, allTypes)
}

const allTypes = `{"title":"Volunteer with us","allowedOrigins":["` + goodOrigin + `"],"fields":[
	{"name":"name","label":"Your name","type":"text","required":true},
	{"name":"email","label":"E-mail","type":"email","required":true},
	{"name":"phone","label":"Phone","type":"phone"},
	{"name":"hours","label":"Hours a week","type":"number"},
	{"name":"from","label":"From when","type":"date"},
	{"name":"area","label":"Where","type":"select","options":["Kitchen","Garden"]},
	{"name":"days","label":"Which days","type":"multiselect","options":["Monday","Tuesday","Friday"]},
	{"name":"about","label":"About you","type":"textarea"},
	{"name":"news","label":"Send me news by e-mail.","type":"consent"},
	{"name":"privacy","label":"I agree that my answers are kept for a year.","type":"consent","required":true}]}`

// goodAnswers returns a valid answer to each field of allTypes.
func goodAnswers() map[string]any {
	return map[string]any{
		"name":    "Ada Okafor",
		"email":   "Ada@Example.org",
		"phone":   "+44 20 7946 0958",
		"hours":   3.5,
		"from":    "2026-02-28",
		"area":    "Garden",
		"days":    []string{"Monday", "Friday"},
		"about":   "One line.\nAnother line.",
		"news":    false,
		"privacy": true,
	}
}

// formRecord is a form as returned to its workspace.
type formRecord struct {
	ID       uuid.UUID
	EmbedKey string `json:"embedKey"`
}

func (s *service) makeForm(h header, definition string) formRecord {
	s.t.Helper()
	a := s.do("POST", formsPath, h, definition)
	var f formRecord
	a.decode(s.t, &f)
	if a.Status != 201 || f.ID == uuid.Nil || !credential.EmbedKey.Matches(f.EmbedKey) {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return f
}

func (f formRecord) path() string { return publicPath + "/forms/" + f.EmbedKey }

// submissionToken reads the form as its sender does, and returns the token.
func (s *service) submissionToken(f formRecord) string {
	s.t.Helper()
	var body struct{ SubmissionToken string }
	a := s.get(f.path(), nil)
	a.decode(s.t, &body)
	if a.Status != 200 || body.SubmissionToken == "" {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return body.SubmissionToken
}

func submissionOf(token string, answers any) string {
	content, _ := json.Marshal(map[string]any{"submissionToken": token, "answers": answers})
	return string(content)
}

// submit sends a submission with the body.
func (s *service) submit(f formRecord, h header, body string) answer {
	s.t.Helper()
	return s.do("POST", f.path()+"/submissions", h.json(), body)
}

type sentSubmission struct {
	ID        uuid.UUID
	Status    string
	StatusURL string `json:"statusUrl"`
}

// accepted sends good answers and returns the accepted submission.
func (s *service) accepted(f formRecord) sentSubmission {
	s.t.Helper()
	return s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), goodAnswers())))
}

func (s *service) acceptedAs(a answer) sentSubmission {
	s.t.Helper()
	var body sentSubmission
	a.decode(s.t, &body)
	if a.Status != 202 || body.ID == uuid.Nil || body.Status != "accepted" ||
		!strings.HasPrefix(body.StatusURL, base+publicPath+"/submissions/"+body.ID.String()+"?token=") {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return body
}

type submissionState struct {
	ID      uuid.UUID
	Status  string
	Reasons []string
}

func (s *service) state(of sentSubmission) submissionState {
	s.t.Helper()
	a := s.get(strings.TrimPrefix(of.StatusURL, base), nil)
	var state submissionState
	a.decode(s.t, &state)
	if a.Status != 200 || state.ID != of.ID || state.Reasons == nil {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return state
}

// ended waits until the submission is finished.
func (s *service) ended(of sentSubmission) submissionState {
	s.t.Helper()
	var state submissionState
	await.NoError(s.t, func() error {
		if state = s.state(of); state.Status == "accepted" {
			return fmt.Errorf("%s is still %s", of.ID, state.Status)
		}
		return nil
	})
	return state
}

// fields returns error.fields of a 400.
func (a answer) fields(t *testing.T) map[string]string {
	t.Helper()
	var body struct {
		Error struct {
			Code   string
			Fields map[string]string
		}
	}
	a.decode(t, &body)
	if a.Status != 400 || body.Error.Code != "VALIDATION_ERROR" {
		t.Fatalf("%d %s", a.Status, a.Body)
	}
	return body.Error.Fields
}

func (s *service) submissions() int {
	s.t.Helper()
	return s.rows("resource.submissions", "")
}
