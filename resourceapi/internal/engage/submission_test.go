package engage

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/rest"
)

func newTokens(t *testing.T, master byte) *Tokens {
	t.Helper()
	tokens, err := NewTokens(seal.NewKeys(bytes.Repeat([]byte{master}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

// issued is when the tokens of these tests are issued.
var issued = time.Date(2026, 3, 1, 9, 0, 0, int(123*time.Millisecond), time.UTC)

func TestE3_SubmissionTokenIsOfOneFormForAnHour(t *testing.T) {
	tokens, form := newTokens(t, 1), uuid.New()
	text := tokens.ForSubmission(form, issued)
	for what, c := range map[string]struct {
		text  string
		form  uuid.UUID
		after time.Duration
		valid bool
	}{
		"at once":           {text, form, 0, true},
		"within the hour":   {text, form, time.Hour - time.Millisecond, true},
		"after an hour":     {text, form, time.Hour, false},
		"other form":        {text, uuid.New(), 0, false},
		"other service":     {newTokens(t, 2).ForSubmission(form, issued), form, 0, false},
		"token of a status": {tokens.ForStatus(uuid.New(), form, issued), form, 0, false},
		"shorter content":   {tokens.submissions.Seal(form[:]), form, 0, false},
		"changed":           {text[1:], form, 0, false},
		"none":              {"", form, 0, false},
		"very long":         {text + string(bytes.Repeat([]byte("a"), maxToken)), form, 0, false},
	} {
		token, err := tokens.ReadSubmission(c.text, c.form, issued.Add(c.after))
		_, refuses := errors.AsType[rest.Problems](err)
		valid := err == nil && token.IssuedAt.Equal(issued) && token.ID != uuid.Nil
		if valid != c.valid || !valid && (!refuses || token != (SubmissionToken{})) {
			t.Errorf("%s: %+v, %v, want valid: %t", what, token, err, c.valid)
		}
	}
	first, err1 := tokens.ReadSubmission(text, form, issued)
	second, err2 := tokens.ReadSubmission(tokens.ForSubmission(form, issued), form, issued)
	if err1 != nil || err2 != nil || first.ID == second.ID {
		t.Errorf("two tokens have one id: %v, %v", err1, err2)
	}
}

func TestReadStatus_AllowsOneSubmissionForADay(t *testing.T) {
	tokens, workspaceID, submission := newTokens(t, 1), uuid.New(), uuid.New()
	text := tokens.ForStatus(workspaceID, submission, issued)
	last := issued.Add(24*time.Hour - time.Millisecond)
	if got, allowed := tokens.ReadStatus(text, submission, last); !allowed || got != workspaceID {
		t.Errorf("within the day: %s, %t", got, allowed)
	}
	_, late := tokens.ReadStatus(text, submission, last.Add(time.Millisecond))
	_, other := tokens.ReadStatus(text, uuid.New(), issued)
	_, toSubmit := tokens.ReadStatus(tokens.ForSubmission(submission, issued), submission, issued)
	_, none := tokens.ReadStatus("", submission, issued)
	if late || other || toSubmit || none {
		t.Errorf("after a day %t, other submission %t, submission token %t, none %t", late, other, toSubmit, none)
	}
}

func TestOpenAnswer_OpensSealedAnswersAndThoseOfPreviousRelease(t *testing.T) {
	tokens, answer := newTokens(t, 1), `{"statusUrl":"https://api.example.org/s?token=x"}`
	sealed := tokens.SealAnswer([]byte(answer))
	if bytes.Contains(sealed, []byte("token")) {
		t.Errorf("%q is readable in the store", sealed)
	}
	for _, stored := range [][]byte{sealed, []byte(answer)} {
		if got, err := tokens.OpenAnswer(stored); err != nil || string(got) != answer {
			t.Errorf("%q: %q, %v", stored, got, err)
		}
	}
	for _, stored := range []string{"", "{", `{"half":`, `"text"`, "[]", string(sealed[1:])} {
		if got, err := tokens.OpenAnswer([]byte(stored)); err == nil {
			t.Errorf("%q: opened as %q", stored, got)
		}
	}
}

// The sender is who the first address and the first phone number belong to, by the text of the field called name.
func TestSupporterOf_TakesFirstAddressAndPhoneAndName(t *testing.T) {
	fields := []Field{
		{Name: "about", Type: Textarea},
		{Name: "Name", Type: Text},
		{Name: "nickname", Type: Text},
		{Name: "email", Type: Email},
		{Name: "other", Type: Email},
		{Name: "phone", Type: Phone},
		{Name: "mobile", Type: Phone},
		{Name: "consent", Type: Consent},
	}
	for what, c := range map[string]struct {
		answers Answers
		want    Supporter
	}{
		"nothing": {Answers{"about": "Me", "nickname": "A", "consent": true}, Supporter{}},
		"everything": {
			Answers{
				"Name": "Ada", "nickname": "A", "email": "Ada@Example.org", "other": "b@example.org",
				"phone": "12345", "mobile": "67890",
			},
			Supporter{Email: "ada@example.org", Phone: "12345", Name: "Ada"},
		},
		"second ones": {
			Answers{"other": "b@xn--bcher-kva.example", "mobile": "67890"},
			Supporter{Email: "b@bücher.example", Phone: "67890"},
		},
	} {
		if got := SupporterOf(fields, c.answers); got != c.want {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}
