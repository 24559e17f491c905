package app

import (
	"testing"

	"github.com/google/uuid"
)

// sends submits the form with an address, and processes it if it is to be linked to a supporter.
func (s *service) sends(f formRecord, email string, processed bool) {
	s.t.Helper()
	answers := goodAnswers()
	answers["email"] = email
	sent := s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), answers)))
	if !processed {
		return
	}
	if err := s.kept().Process(s.t.Context(), uuid.Nil, sent.ID); err != nil {
		s.t.Fatal(err)
	}
}

// One mailbox is one supporter in any spelling of its address, and one spelling erases all that it sent.
func TestSupporters_AreOneInAnySpelling(t *testing.T) {
	s := newService(t)
	h, f := s.form()
	for i, email := range []string{
		"Ada@München.example", "ada@xn--mnchen-3ya.example", "ADA@MU\u0308NCHEN.example",
		"\u202aada@münchen.example\u202c",
	} {
		s.sends(f, email, i%2 == 0)
	}
	if n := s.rows("resource.supporters", "email = 'ada@münchen.example'"); n != 1 ||
		s.rows("resource.supporters", "") != 1 {
		t.Errorf("%d supporters of one mailbox", n)
	}
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
			s := newService(t)
			workspaceID, h := s.workspace()
			f := s.makeForm(h, allTypes)
			const columns = "(id, tenant_id, form_id, token_id, answers, consents, trapped, finished_at, status, " +
				"supporter_id)"
			insert := func(email, status string, supporter any) {
				s.Exec(`insert into resource.submissions `+columns+`
					values (gen_random_uuid(), $1, $2, gen_random_uuid(),
					jsonb_build_object('email', $3::text), '[]', false, now(), $4, $5)`,
					workspaceID, f.ID, email, status, supporter)
			}
			var last uuid.UUID
			for _, stored := range []string{
				"jose\u0301@bücher.example", "jos\u00e9@xn--bcher-kva.example", "jos\u00e9@ｂücher.example",
			} {
				last = uuid.New()
				s.Exec("insert into resource.supporters (id, tenant_id, email) values ($1, $2, $3)",
					last, workspaceID, stored)
				insert(stored, "processed", last)
			}
			insert("jos\u00e9@xn--bcher-kva.example", "rejected", nil)
			s.sends(f, "other@bücher.example", true)
			erase(s, h, last).wants(t, 200, `"deletedSubmissions":4`)
			if s.rows("resource.submissions", "") != 1 || s.rows("resource.supporters", "") != 1 {
				t.Error("not only the other supporter remains")
			}
		})
	}
}

// Numbers and addresses from address books are accepted, and stored in plain characters.
func TestPublicForm_AcceptsPastedText(t *testing.T) {
	s := newService(t)
	_, f := s.form()
	for typed, stored := range map[string]string{
		"\u202a+44\u00a020\u20117946\u20130958\u202c": "+44 20-7946-0958",
		"\u2066(０２０) ７９４６ ０９５８\u2069":                 "(020) 7946 0958",
		"020 7946 0958 ext 12":                        "020 7946 0958 ext 12",
		"020 7946 0958 x12":                           "020 7946 0958 x12",
		"٠٢٠ ٧٩٤٦ ٠٩٥٨":                               "020 7946 0958",
	} {
		answers := goodAnswers()
		answers["phone"], answers["email"] = typed, "\ufeff Ada@Example.org\u200b"
		sent := s.acceptedAs(s.submit(f, nil, submissionOf(s.submissionToken(f), answers)))
		if n := s.Count(`select count(*) from resource.submissions where id = $1 and answers->>'phone' = $2
			and answers->>'email' = 'Ada@Example.org'`, sent.ID, stored); n != 1 {
			t.Errorf("%+q is not stored as %q", typed, stored)
		}
	}
	for _, wrong := range []string{
		"020 7946 0958 ext", "ext 12", "12 ext 34567", "020 7946 0958 y12", "020 7946 0958 ext 123456789", "x12",
	} {
		answers := goodAnswers()
		answers["phone"] = wrong
		s.submit(f, nil, submissionOf(s.submissionToken(f), answers)).expect(t, 400, "VALIDATION_ERROR", "")
	}
}
