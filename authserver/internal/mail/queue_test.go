package mail

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"

	"github.com/almonerhq/almoner/shared/crypt/seal"
)

// A message of a kind that only a later release knows is left to the processes of that release until it expires.
func TestWork_LeavesUnknownKindToOtherProcesses(t *testing.T) {
	t.Parallel()
	box, err := seal.NewBox(seal.NewKeys(make([]byte, 32)), purpose)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 11, 25, 12, 0, 0, 0, time.UTC)
	s := &sender{box: box, WorkerDeps: WorkerDeps{Now: func() time.Time { return now }, Count: func(Kind, string) {}}}
	content, err := json.Marshal(stored{Message: Message{
		ID:      uuid.New(),
		Kind:    "of_a_later_release",
		Address: "ada@example.org",
		Expires: now.Add(time.Hour),
	}})
	if err != nil {
		t.Fatal(err)
	}
	work := func() error {
		return s.Work(t.Context(), &river.Job[job]{Args: job{Sealed: box.Seal(content)}})
	}
	if _, left := errors.AsType[*river.JobSnoozeError](work()); !left {
		t.Errorf("not left to another process: %v", work())
	}
	now = now.Add(time.Hour)
	if _, cancelled := errors.AsType[*river.JobCancelError](work()); !cancelled {
		t.Errorf("not cancelled after it expired: %v", work())
	}
}
