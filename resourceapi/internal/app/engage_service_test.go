package app

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/crypt/credential"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const (
	formsPath   = "/v1/engage/forms"
	publicPath  = "/v1/engage/public"
	goodOrigin  = "https://www.harbour-trust.example"
	otherOrigin = "https://elsewhere.example"
)

// workspace creates a workspace and returns the headers of a member with every permission of Engage.
func (s *service) workspace() header {
	s.t.Helper()
	return s.newHolder(perm.EngageReadForms, perm.EngageWriteForms, perm.EngageReadSubmissions,
		perm.EngageWriteSubmissions)
}

// form creates a workspace, and returns the headers of workspace and a form with fields of all types.
func (s *service) form() (header, formRecord) {
	s.t.Helper()
	h := s.workspace()
	return h, s.makeForm(h, allTypes)
}

// newWorkspace is newService with the headers of workspace, and newForm with a form too.
func newWorkspace(t *testing.T) (*service, header) {
	s := newService(t)
	return s, s.workspace()
}

func newForm(t *testing.T) (*service, header, formRecord) {
	s := newService(t)
	h, f := s.form()
	return s, h, f
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
	ID          uuid.UUID
	EmbedKey    string `json:"embedKey"`
	workspaceID uuid.UUID
}

func (s *service) makeForm(h header, definition string) formRecord {
	s.t.Helper()
	a := s.do("POST", formsPath, h, definition)
	f := decoded[formRecord](s.t, a)
	f.workspaceID = h.workspace()
	if a.Status != 201 || f.ID == uuid.Nil || !credential.EmbedKey.Matches(f.EmbedKey) {
		s.t.Fatalf("%d %s", a.Status, a.Body)
	}
	return f
}

func (f formRecord) path() string { return publicPath + "/forms/" + f.EmbedKey }

// submissionToken reads the form as its sender does, and returns the token.
func (s *service) submissionToken(f formRecord) string {
	s.t.Helper()
	a := s.get(f.path(), nil)
	body := decoded[struct{ SubmissionToken string }](s.t, a)
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
	return s.sends(f, goodAnswers())
}

func (s *service) acceptedAs(a answer) sentSubmission {
	s.t.Helper()
	body := decoded[sentSubmission](s.t, a)
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
	state := decoded[submissionState](s.t, a)
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
func (a answer) fields(t testing.TB) map[string]string {
	t.Helper()
	a.refuses(t, 400, "VALIDATION_ERROR")
	return decoded[struct {
		Error struct{ Fields map[string]string }
	}](t, a).Error.Fields
}

func (s *service) submissions() int {
	s.t.Helper()
	return s.rows("resource.submissions", "")
}

// ideaForm is a form without a required answer.
const ideaForm = `{"title":"T","allowedOrigins":[],"fields":[{"name":"idea","label":"Idea","type":"text"}]}`

// allTypesWith is allTypes with more members.
func allTypesWith(members string) string { return strings.Replace(allTypes, "{", "{"+members+",", 1) }

// goodAnswersWith is goodAnswers with another answer to a field.
func goodAnswersWith(field string, answer any) map[string]any {
	answers := goodAnswers()
	answers[field] = answer
	return answers
}

// own returns the path of the form for its workspace.
func (f formRecord) own() string { return formsPath + "/" + f.ID.String() }

// engage sets the state of the module Engage in the test's workspaces.
func (s *service) engage(enabled, provisioned bool) {
	s.t.Helper()
	s.setModule("engage", enabled, provisioned)
}

// setModule sets the state of a module in the test's workspaces.
func (s *service) setModule(module string, enabled, provisioned bool) {
	s.t.Helper()
	s.Exec(`insert into account.tenant_modules (tenant_id, module, enabled, provisioned)
		select id, $4, $1, $2 from account.tenants where id = any ($3)
		on conflict (tenant_id, module) do update set enabled = $1, provisioned = $2`,
		enabled, provisioned, s.workspaces, module)
}

// processed waits until the submission is finished, and checks that it was processed.
func (s *service) processed(of sentSubmission) {
	s.t.Helper()
	if state := s.ended(of); state.Status != "processed" || len(state.Reasons) != 0 {
		s.t.Errorf("%+v, want a processed submission", state)
	}
}

// sends sends the answers with a new token, and returns the accepted submission.
func (s *service) sends(f formRecord, answers map[string]any) sentSubmission {
	s.t.Helper()
	return s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), answers)))
}

// One mailbox is one supporter in any spelling of its address, and one spelling erases all that it sent.
func TestSupporters_AreOneInAnySpelling(t *testing.T) {
	s, h, f := newForm(t)
	for i, email := range []string{
		"Ada@München.example", "ada@xn--mnchen-3ya.example", "ADA@MU\u0308NCHEN.example",
		"\u202aada@münchen.example\u202c",
	} {
		s.sentBy(f, email, i%2 == 0)
	}
	s.wantsRows(1, "resource.supporters", "email = 'ada@münchen.example'")
	s.wantsRows(1, "resource.supporters", "")
	a := s.do("POST", supportersPath+"/erase", h, `{"email":"ada@XN--mnchen-3ya.example"}`)
	a.wants(t, 200, `"deletedSubmissions":4`)
	s.wantsRows(0, "resource.submissions", "")
}

// What earlier releases stored for other spellings goes with an erasure by any spelling, and by any of the ids.
func TestErase_FindsSupportersOfEarlierReleases(t *testing.T) {
	t.Parallel()
	for name, erase := range map[string]func(s *service, h header, id uuid.UUID) answer{
		"by address": func(s *service, h header, _ uuid.UUID) answer {
			return s.do("POST", supportersPath+"/erase", h, `{"email":"JOS\u00c9@bu\u0308cher.example"}`)
		},
		"by id": func(s *service, h header, id uuid.UUID) answer {
			return s.do("DELETE", supportersPath+"/"+id.String(), h, "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, h, f := newForm(t)
			var last uuid.UUID
			for _, stored := range []string{
				"jose\u0301@bücher.example", "jos\u00e9@xn--bcher-kva.example", "jos\u00e9@ｂücher.example",
			} {
				last = s.supporter(f, stored)
				s.answered(f, last, stored, 1)
			}
			s.answered(f, uuid.Nil, "jos\u00e9@xn--bcher-kva.example", 1)
			s.Exec(`update resource.submissions set status = 'rejected', finished_at = now()
				where {mine} and supporter_id is null`)
			s.sentBy(f, "other@bücher.example", true)
			erase(s, h, last).wants(t, 200, `"deletedSubmissions":4`)
			s.wantsRows(1, "resource.submissions", "")
			s.wantsRows(1, "resource.supporters", "")
		})
	}
}

// sentBy submits the form with an address, and processes it if it is to be linked to a supporter.
func (s *service) sentBy(f formRecord, email string, processed bool) {
	s.t.Helper()
	sent := s.sends(f, goodAnswersWith("email", email))
	if processed {
		s.processOne(sent.ID)
	}
}

// flood sends n submissions from the address, and counts the responses by status.
func (s *service) flood(f formRecord, address string, n int) map[int]int {
	s.t.Helper()
	counts, body := map[int]int{}, submissionOf("", goodAnswers())
	for range n {
		a := s.submit(f, header{"X-Forwarded-For": address}, body)
		counts[a.Status]++
		if a.Status == 429 {
			seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
			if a.code(s.t) != "RATE_LIMITED" || err != nil || seconds < 1 || seconds > 60 {
				s.t.Errorf("%s %v", a.Body, a.Header)
			}
		}
	}
	return counts
}

func TestSubmit_Limits120PerMinutePerAddressAndForm(t *testing.T) {
	s := ownService(t) // not parallel: it needs its requests within a minute
	h := s.workspace()
	f, other := s.makeForm(h, allTypes), s.makeForm(h, allTypes)
	keyed := header{"X-Forwarded-For": "198.51.100.7", "Idempotency-Key": "first"}
	body := submissionOf(s.submissionToken(f), goodAnswers())
	first := s.submit(f, keyed, body)
	s.acceptedAs(first)
	if counts := s.flood(f, "198.51.100.7", 125); counts[400] != 119 || counts[429] != 6 {
		t.Fatalf("%v", counts)
	}
	s.submit(f, header{"X-Forwarded-For": "198.51.100.7"}, submissionOf(s.submissionToken(f), goodAnswers())).
		wants(t, 429)
	s.submit(f, keyed, body).is(t, first.Body)
	s.sendPage(f, header{"X-Forwarded-For": "198.51.100.7"}, goodFields(s.filled(f))).
		wants(t, 429, "Your answers are still on this page.", `name="a.name" value="Ada Okafor"`, ">Send again<").
		header(t, "Retry-After", "*")
	for _, free := range []map[int]int{
		s.flood(other, "198.51.100.7", 1), s.flood(f, "198.51.100.8", 1), s.flood(f, "198.51.100.7, 198.51.100.9", 1),
	} {
		if free[400] != 1 {
			t.Errorf("%v", free)
		}
	}
	// A caller with IPv6 has a whole /64, which counts as one address.
	if counts := s.flood(other, "2001:db8:1:2::1", 120); counts[400] != 120 {
		t.Errorf("%v", counts)
	}
	near, far := s.flood(other, "2001:db8:1:2:ffff::2", 1), s.flood(other, "2001:db8:1:3::1", 1)
	if near[429] != 1 || far[400] != 1 {
		t.Errorf("%v in the network, %v outside", near, far)
	}
	s.wantsRows(1, "resource.submissions", "")
}

func TestSubmit_LimitsLocallyWithoutRedis(t *testing.T) {
	redis := testkit.NewRedis(t)
	s := ownService(t, func(c *Config) { c.RedisURL = credential.Secret(redis.URL) })
	_, f := s.form()
	s.accepted(f)
	s.get("/readyz", nil).wants(t, 200).is(t, `{"keys":"ok","postgres":"ok","redis":"ok"}`+"\n")
	redis.Kill()
	began := time.Now()
	s.accepted(f)
	if took := time.Since(began); took >= testkit.StoreWait {
		t.Errorf("it took %s", took)
	}
	if counts := s.flood(f, "198.51.100.7", 125); counts[400] != 120 || counts[429] != 5 {
		t.Errorf("%v", counts)
	}
	s.get("/readyz", nil).wants(t, 200).is(t, `{"keys":"ok","postgres":"ok","redis":"does not answer"}`+"\n")
	s.logHas("Redis unavailable")
	s.logLacks(redis.URL)
	must(t, redis.Restart(t.Context()))
	// Redis is not called for two seconds after a failure. The counts of this process would last for a minute.
	await.True(t, "the counts are those of Redis", func() bool {
		return s.flood(f, "198.51.100.7", 1)[400] == 1
	})
}

func TestSubmit_FrozenRedisDoesNotDelay(t *testing.T) {
	redis := testkit.NewRedis(t)
	s := ownService(t, func(c *Config) { c.RedisURL = credential.Secret(redis.URL) }, silently)
	_, f := s.form()
	s.accepted(f)
	must(t, redis.Pause())
	defer redis.Resume()
	s.accepted(f) // also the first one, which finds out that Redis does not answer
	s.serve(s.build())
	began := time.Now()
	for _, a := range atOnce(20, func(i int) answer {
		from := header{"X-Forwarded-For": fmt.Sprintf("198.51.100.%d", i)}
		body := submissionOf(s.submissionToken(f), goodAnswers())
		return s.insist("POST", f.path()+"/submissions", from.json(), body) // 503 while others are written
	}) {
		a.wants(t, 202)
	}
	const inTurn = 10 * testkit.SilentStoreWait
	if took := time.Since(began); took >= 2*inTurn { // if each waited for the previous one
		t.Errorf("20 submissions took %s", took)
	}
	began = time.Now()
	if counts := s.flood(f, "198.51.100.7", 10); counts[400] != 10 {
		t.Errorf("%v", counts)
	}
	if took := time.Since(began); took >= inTurn { // if each called Redis
		t.Errorf("10 submissions one after the other took %s", took)
	}
}
