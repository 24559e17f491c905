package engage

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/apierr"
	"github.com/almonerhq/almoner/shared/contract/spelling"
	"github.com/almonerhq/almoner/shared/crypt/seal"
	"github.com/almonerhq/almoner/shared/rest"
)

// A Status is the state of a submission (E5).
type Status string

// The statuses.
const (
	Accepted  Status = "accepted"
	Processed Status = "processed"
	Rejected  Status = "rejected"
)

// Statuses returns the names of the statuses.
func Statuses() []string { return []string{string(Accepted), string(Processed), string(Rejected)} }

// Reasons for the rejection of an accepted submission, shown to the sender.
const (
	ReasonTrapped = "A hidden field was filled in, which usually means that a program sent the form. If you are a " +
		"person, please open the form again and leave the Website field empty."
	ReasonFailed = "We tried several times but could not process your answers. Please send them again."
)

// A Submission is one submission of a form, while it is accepted and processed.
type Submission struct {
	ID            uuid.UUID
	Form          uuid.UUID
	WorkspaceID   uuid.UUID
	Token         uuid.UUID // id of its submission token
	Answers       Answers
	StoredAnswers json.RawMessage // the answers as stored, which may not be valid
	Consents      []ConsentAnswer
	Trapped       bool // the hidden field was filled in
	Status        Status
	Reasons       []string
	CreatedAt     time.Time
}

// Writer changes records within one transaction.
type Writer interface {
	// CreateForm adds a form whose definition was checked. by is zero if no user creates it.
	CreateForm(ctx context.Context, f Form, by uuid.UUID) (Form, error)
	// ReplaceForm stores the result of edit, which runs while the form is locked. The fields of the form stay
	// unchanged. An edit without changes makes no new version. It returns ErrNotFound, or the error of edit.
	ReplaceForm(ctx context.Context, workspaceID, id uuid.UUID, edit func(Form) (Form, error)) (Form, error)
	// EraseForm, EraseSupporter and EraseAddress erase with all submissions, or accept the erasure of more than
	// MaxErasedAtOnce of them, or return ErrTooManyErasures. For an address that is unknown they erase nothing.
	EraseForm(ctx context.Context, workspaceID, id, by uuid.UUID) (Erasure, error)
	EraseSupporter(ctx context.Context, workspaceID, id, by uuid.UUID) (Erasure, error)
	EraseAddress(ctx context.Context, workspaceID uuid.UUID, email string, by uuid.UUID) (Erasure, error)
	// EraseSubmission returns ErrNoSubmission.
	EraseSubmission(ctx context.Context, workspaceID, id, by uuid.UUID) error
}

// A Supporter is the sender of a submission, as far as the answers identify them.
type Supporter struct {
	Email string // in its canonical spelling; empty if not given
	Phone string // empty if not given
	Name  string // empty if not given
}

// A StoredSupporter is a supporter as stored and as returned to the workspace.
type StoredSupporter struct {
	ID        uuid.UUID `json:"id"`
	Email     *string   `json:"email"`
	Phone     *string   `json:"phone"`
	Name      *string   `json:"name"`
	CreatedAt rest.Time `json:"createdAt"`
}

// SupporterOf finds the sender in the answers: the first e-mail address, the first phone number, and the text of the
// field called name.
func SupporterOf(fields []Field, answers Answers) Supporter {
	var s Supporter
	for _, field := range fields {
		text, _ := answers[field.Name].(string)
		switch {
		case field.Type == Email && s.Email == "":
			s.Email = spelling.Key(text)
		case field.Type == Phone && s.Phone == "":
			s.Phone = text
		case field.Type == Text && strings.EqualFold(field.Name, "name"):
			s.Name = text
		}
	}
	return s
}

// A SubmissionRecord is a submission as stored and as returned to its workspace.
type SubmissionRecord struct {
	ID          uuid.UUID       `json:"id"`
	Status      Status          `json:"status"`
	Reasons     []string        `json:"reasons"`
	Answers     json.RawMessage `json:"answers"` // as stored
	Consents    []ConsentAnswer `json:"consents"`
	SupporterID *uuid.UUID      `json:"supporterId"`
	CreatedAt   rest.Time       `json:"createdAt"`
	UpdatedAt   rest.Time       `json:"updatedAt"` // FinishedAt or, before that, CreatedAt (E5)
	FinishedAt  *rest.Time      `json:"finishedAt"`
}

// MaxErasedAtOnce is the number of submissions up to which a request erases them itself. A worker erases more of them
// in batches (contract, section 6a).
const MaxErasedAtOnce = 1000

// The kinds of records that are erased with their submissions, as the audit log has them.
const (
	ErasedForm      = "form"
	ErasedSupporter = "supporter"
)

// An Erasure is the erasure of a form or of a supporter with their submissions. From the moment it is accepted, none of
// them can be read.
type Erasure struct {
	ID      uuid.UUID `json:"id"` // zero if the request has erased everything
	Kind    string    `json:"-"`
	Status  Status    `json:"status"`             // Accepted or Processed
	Deleted int       `json:"deletedSubmissions"` // so far
}

var (
	// ErrNoErasure is returned if the workspace has no such erasure, or none of the last 30 days.
	ErrNoErasure = apierr.New(apierr.NotFound, "There is no such erasure in this workspace.")
	// ErrTooManyErasures is returned if too many erasures of the workspace are not finished.
	ErrTooManyErasures = &apierr.Error{
		Kind:       apierr.RateLimited,
		RetryAfter: 10,
		Message: "Too many erasures of this workspace are not finished. Send this one again after the time in " +
			"Retry-After.",
	}
)

// Lifetimes of the tokens.
const (
	SubmissionTokenLifetime = time.Hour
	StatusTokenLifetime     = 24 * time.Hour
)

// maxToken is the maximum length of a token, in characters; longer texts are not opened.
const maxToken = 256

// Tokens seals and opens the tokens that the public receives instead of a credential. It is safe for concurrent use.
type Tokens struct{ submissions, statuses, answers *seal.Box }

// NewTokens derives the token keys from the service's keys.
func NewTokens(keys seal.Keys) (*Tokens, error) {
	submissions, err1 := seal.NewBox(keys, "engage submission token")
	statuses, err2 := seal.NewBox(keys, "engage status token")
	answers, err3 := seal.NewBox(keys, "engage stored answer")
	return &Tokens{submissions, statuses, answers}, cmp.Or(err1, err2, err3)
}

// A SubmissionToken permits one submission to one form (E3).
type SubmissionToken struct {
	ID       uuid.UUID
	IssuedAt time.Time // with millisecond precision
}

// ForSubmission returns a new token for the form.
func (t *Tokens) ForSubmission(form uuid.UUID, now time.Time) string {
	id := uuid.New()
	return sealToken(t.submissions, form, now, id)
}

// ReadSubmission opens a token. It returns ErrToken if the token was not issued for the form, or not within the hour
// before now.
func (t *Tokens) ReadSubmission(text string, form uuid.UUID, now time.Time) (SubmissionToken, error) {
	about, made, id, err := openToken(t.submissions, text)
	if err != nil || about != form || now.Sub(made) >= SubmissionTokenLifetime {
		return SubmissionToken{}, ErrToken
	}
	return SubmissionToken{id, made}, nil
}

// ForStatus returns a token that permits reading the status of the workspace's submission, and nothing else.
func (t *Tokens) ForStatus(workspaceID, submission uuid.UUID, now time.Time) string {
	return sealToken(t.statuses, submission, now, workspaceID)
}

// ReadStatus reports whether the token permits reading the status of the submission at the given time, and returns the
// workspace of the submission. It is zero in a token that an earlier release issued.
func (t *Tokens) ReadStatus(text string, submission uuid.UUID, now time.Time) (workspaceID uuid.UUID, allowed bool) {
	about, made, workspaceID, err := openToken(t.statuses, text)
	return workspaceID, err == nil && about == submission && now.Sub(made) < StatusTokenLifetime
}

// SealAnswer seals an answer that has the token of a status, for the store.
func (t *Tokens) SealAnswer(body []byte) []byte { return t.answers.SealBytes(body) }

// OpenAnswer opens a stored answer. The previous release stored JSON, which it returns unchanged.
func (t *Tokens) OpenAnswer(stored []byte) ([]byte, error) {
	if len(stored) > 0 && stored[0] == '{' && json.Valid(stored) {
		return stored, nil
	}
	return t.answers.OpenBytes(stored)
}

// tokenLength is the length of the content of a token in bytes: its subject, its creation time in milliseconds, and its
// id or the workspace.
const tokenLength = 16 + 8 + 16

func sealToken(box *seal.Box, about uuid.UUID, made time.Time, id uuid.UUID) string {
	content := binary.BigEndian.AppendUint64(about[:], uint64(made.UnixMilli()))
	return box.Seal(append(content, id[:]...))
}

func openToken(box *seal.Box, text string) (about uuid.UUID, made time.Time, id uuid.UUID, err error) {
	if len(text) > maxToken {
		return about, made, id, ErrToken
	}
	content, err := box.Open(text)
	if err != nil || len(content) != tokenLength {
		return about, made, id, ErrToken
	}
	made = time.UnixMilli(int64(binary.BigEndian.Uint64(content[16:])))
	return uuid.UUID(content[:16]), made, uuid.UUID(content[24:]), nil
}
