package torture

import (
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/almonerhq/almoner/deploy/local/stack"
	"github.com/almonerhq/almoner/e2e/harness"
	"github.com/almonerhq/almoner/shared/devkit/await"
)

// These steps process what was accepted with 202: the worker processes submissions, and resourceapi imports.
const (
	submissionTaken     step = "after a submission was taken"
	submissionDone      step = "before a submission's commit"
	submissionCommitted step = "after a submission's commit"
	importTaken         step = "after an import was taken"
	importDone          step = "before an import's commit"
	importCommitted     step = "after an import's commit"
)

const (
	submissionsFile = "resourceapi/internal/store/postgres/submissions.go"
	importsFile     = "resourceapi/internal/store/postgres/imports.go"

	definitionsOfSubmissions = "// SubmissionStatus reads"
	beginOfProcess           = "	return e.end(ctx, workspaceID, id, (*transaction).process)\n"
	submissionFinished       = "supporter, append([]string{}, reasons...), at)\n"
	importFound              = "		if taken = t.takeImport(workspaces); taken != nil {\n"
	importFinished           = "		taken.workspaceID, taken.id, string(status), rows, wrong)\n"
	importTransactionEnded   = "	if err != nil && taken != nil {\n"
)

func deathsAtWork() []harness.Fault {
	die := func(s step) string { return "dieAt(\"" + string(s) + "\")\n" }
	dieUnlessFailed := func(s step) string { return "if t.err == nil {\n" + die(s) + "}\n" }
	return []harness.Fault{
		{File: submissionsFile, Old: "import (\n", New: deathImports},
		{File: submissionsFile, Old: definitionsOfSubmissions, New: deathDefinition + definitionsOfSubmissions},
		{
			File: submissionsFile,
			Old:  beginOfProcess,
			New:  die(submissionTaken) + "defer " + die(submissionCommitted) + beginOfProcess,
		},
		{File: submissionsFile, Old: submissionFinished, New: submissionFinished + dieUnlessFailed(submissionDone)},
		{File: importsFile, Old: importFound, New: importFound + die(importTaken)},
		{File: importsFile, Old: importFinished, New: importFinished + dieUnlessFailed(importDone)},
		{
			File: importsFile,
			Old:  importTransactionEnded,
			New:  "if taken != nil && err == nil {\n" + die(importCommitted) + "}\n" + importTransactionEnded,
		},
	}
}

// dieAtWork kills the worker and resourceapi at each of their steps. All accepted work is processed exactly once in
// effect.
func (s stage) dieAtWork(t *testing.T, times int) {
	w := newWorkload(t, s.Product)
	for range times {
		for _, at := range []step{importTaken, importDone, importCommitted} {
			s.diesAtWork(t, at, s.running.Resourceapi, w.orders)
		}
		for _, at := range []step{submissionTaken, submissionDone, submissionCommitted} {
			s.diesAtWork(t, at, s.running.Worker, w.submits)
		}
	}
	aMinutePasses(t, s.Product, s.running)
	w.wantsCommands(t)
}

// diesAtWork sends a request during or after which the service is killed at the step, and restarts the service.
func (s stage) diesAtWork(t *testing.T, at step, service *stack.Service, order func(*testing.T) bool) {
	t.Helper()
	file := s.mark(t, at)
	var client sync.WaitGroup
	client.Go(func() { order(t) })
	await.True(t, fmt.Sprintf("a process is killed %s", at), func() bool {
		_, err := os.Stat(file)
		return err != nil
	})
	if err := service.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	client.Wait()
}

// aMinutePasses makes another worker rescue the jobs whose process was killed.
func aMinutePasses(t *testing.T, p *harness.Product, running *stack.Stack) {
	t.Helper()
	running.Worker.Kill()
	// The killed worker may have had no job.
	p.Database.Exec(t, `with leader as (delete from river.river_leader), aged as (update river.river_job
		set attempted_at = attempted_at - interval '1 minute' where state = 'running' returning 1)
		select count(*) from aged`)
	if err := running.Worker.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
}
