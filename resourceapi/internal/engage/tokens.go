package engage

import (
	"encoding/binary"
	"encoding/json"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/crypt/seal"
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
	submissions, err := seal.NewBox(keys, "engage submission token")
	if err != nil {
		return nil, err
	}
	statuses, err := seal.NewBox(keys, "engage status token")
	if err != nil {
		return nil, err
	}
	answers, err := seal.NewBox(keys, "engage stored answer")
	if err != nil {
		return nil, err
	}
	return &Tokens{submissions, statuses, answers}, nil
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

// The content of a token: its subject, its creation time in milliseconds, and its id or the workspace.
const tokenLength = 16 + 8 + 16

func sealToken(box *seal.Box, about uuid.UUID, made time.Time, id uuid.UUID) string {
	content := make([]byte, 0, tokenLength)
	content = append(content, about[:]...)
	content = binary.BigEndian.AppendUint64(content, uint64(made.UnixMilli()))
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
