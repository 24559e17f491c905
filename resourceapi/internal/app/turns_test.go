package app

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/almonerhq/almoner/shared/contract/perm"
	"github.com/almonerhq/almoner/shared/devkit/await"
	"github.com/almonerhq/almoner/shared/devkit/testkit"
)

const busyWords = "Other writes or an import of this workspace are running"

// Writes that wait for an import of their workspace hold so few connections that reads of another workspace are not
// delayed.
func TestWrites_DoNotDelayOtherWorkspaces(t *testing.T) {
	s := ownService(t, waitsFor(await.Long)) // the writes wait until the end of the import
	workspaceID, editing := s.editor()
	other, pat := s.reader()
	formWorkspace, h := s.workspace()
	form := s.makeForm(h, allTypes)
	id := s.create(editing, `{"name":"Warm Homes"}`).ID.String()
	var writers []header
	for range 4 {
		user := s.User()
		s.Member(workspaceID, user, perm.ProgrammesRead, perm.ProgrammesWrite)
		writers = append(
			writers,
			as(s.PAT(workspaceID, user, perm.ProgrammesRead, perm.ProgrammesWrite).Reveal(), workspaceID).json(),
		)
	}
	tokens := make(chan string, 20)
	for range cap(tokens) {
		tokens <- s.submissionToken(form)
	}
	for name, c := range map[string]struct {
		workspace uuid.UUID
		list      string
		write     func(i int) answer
	}{
		"programmes": {workspaceID, "programmes", func(i int) answer {
			if i%2 == 0 {
				return s.do("PATCH", listPath+"/"+id, writers[i%4], fmt.Sprintf(`{"summary":"%d"}`, i))
			}
			return s.do("POST", listPath, writers[i%4], `{"name":"Late"}`)
		}},
		"submissions": {formWorkspace, form.ID.String(), func(int) answer {
			return s.submit(form, nil, submissionOf(<-tokens, goodAnswers()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s.Exec("begin")
			s.Exec("select resource.next_moment($1, $2)", c.workspace, c.list)
			answers := make(chan answer, 20)
			var group sync.WaitGroup
			for i := range cap(answers) {
				group.Go(func() { answers <- c.write(i) })
			}
			s.awaitLocks(1)
			testkit.Quick(t, 600*time.Millisecond, func() {
				s.get(listPath, as(pat, other)).wants(t, 200)
			})
			s.Exec("rollback")
			group.Wait()
			close(answers)
			for a := range answers {
				if a.Status == 503 && (!strings.Contains(a.Body, busyWords) || a.Header.Get("Retry-After") == "") ||
					a.Status >= 400 && a.Status != 503 {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			}
		})
	}
}

// Jobs that wait for a form's list hold no more connections than the writes of the workspace may hold.
func TestJobs_ShareTurnsWithWrites(t *testing.T) {
	t.Parallel()
	s := ownService(t)
	workspaceID, h := s.workspace()
	form := s.makeForm(h, allTypes)
	other, pat := s.reader()
	jobs := s.app.store.Engage(nil)
	for name, job := range map[string]func(id uuid.UUID) error{
		"process": func(id uuid.UUID) error { return jobs.Process(t.Context(), workspaceID, id) },
		"reject":  func(id uuid.UUID) error { return jobs.Reject(t.Context(), workspaceID, id, "late") },
	} {
		var all []sentSubmission
		for range 4 {
			all = append(all, s.accepted(form))
		}
		late := submissionOf(s.submissionToken(form), goodAnswers())
		s.Exec("begin")
		s.Exec("select resource.next_moment($1, $2)", workspaceID, form.ID.String())
		var group sync.WaitGroup
		group.Go(func() { s.submit(form, nil, late) })
		for _, one := range all {
			group.Go(func() { _ = job(one.ID) }) // some finish, some have waited too long
		}
		s.awaitLocks(2)
		for range 10 {
			s.get(listPath, as(pat, other)).wants(t, 200)
			if n := s.locksAwaited(); n > 4 { // no other workspace writes
				t.Errorf("%s: %d connections wait for one workspace, want at most 4", name, n)
			}
		}
		s.Exec("rollback")
		group.Wait()
		if err := job(all[0].ID); err != nil {
			t.Error(err)
		}
		if state := s.state(all[0]).Status; state == "accepted" {
			t.Errorf("%s: afterwards the submission is %s", name, state)
		}
	}
}
